package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/test/lab/nested"
)

const (
	// readyFD is where a keeper tells how its VM's boot ended: good, or the error.
	readyFD = 3
	// answerLimit is for a VM that is up to say what it sees.
	answerLimit = 30 * time.Second
)

// good is what a keeper says of a VM that is up.
const good = "up"

// offFile is there where sandboxes are to have no VM.
const offFile = "/run/vm-off"

// bootUnlessOff boots the VM, or leaves an empty report in its place.
func bootUnlessOff(v vm) error {
	if _, err := os.Stat(offFile); err != nil {
		return startKeeper(v)
	}
	return os.WriteFile(v.file(reportFile), []byte("{}"), 0o644)
}

// startKeeper starts a process that boots the VM and outlives this one, and waits until the VM is up.
func startKeeper(v vm) error {
	ready, tell, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start the VM's keeper: %w", err)
	}
	defer ready.Close() // it was only read
	pid, err := v.launch(tell)
	_ = tell.Close() // the keeper has its own
	if err != nil {
		return fmt.Errorf("start the VM's keeper: %w", err)
	}
	if err := os.WriteFile(v.file(pidFile), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return errors.Join(err, v.patience.end(pid))
	}
	return v.awaitBoot(ready)
}

// launch starts the keeper. Its context is its own: it ends by stop.
func (v vm) launch(tell *os.File) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	log, err := os.Create(v.file(logFile))
	if err != nil {
		return 0, err
	}
	defer log.Close()                               // the keeper has its own
	cmd := exec.Command(self, keeperCommand, v.dir) //nolint:noctx // it outlives this process
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{tell}
	cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	return cmd.Process.Pid, nil
}

func (v vm) awaitBoot(ready *os.File) error {
	if err := ready.SetReadDeadline(time.Now().Add(v.patience.boot)); err != nil {
		return fmt.Errorf("wait for the VM: %w", err)
	}
	said, err := io.ReadAll(ready)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the VM is not up after %s", v.patience.boot)
	case err != nil:
		return fmt.Errorf("wait for the VM: %w", err)
	case string(said) == good:
		return nil
	case len(said) > 0:
		return errors.New(string(said))
	}
	log, err := os.ReadFile(v.file(logFile))
	return errors.Join(fmt.Errorf("the VM's keeper ended: %s", bytes.TrimSpace(log)), err)
}

// keep boots a VM, tells how that went, and keeps the VM running until a signal ends both. A VM that nobody waits for
// is ended. What boot returns ends the VM.
func keep(ctx context.Context, ready *os.File, boot func(context.Context) (func(context.Context) error, error)) error {
	unix.CloseOnExec(int(ready.Fd())) // inherited, and the VM's process must not hold it open
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM)
	defer stop()
	end, err := boot(ctx)
	text := good
	if err != nil {
		text = err.Error()
	}
	_, tellErr := ready.WriteString(text)
	tellErr = errors.Join(tellErr, ready.Close())
	if err != nil {
		return err
	}
	if tellErr == nil {
		<-ctx.Done()
	}
	return errors.Join(tellErr, end(context.WithoutCancel(ctx)))
}

// boot boots the VM, writes what it sees, pauses it unless it has a network, on which it may be asked for more, and serves
// the pod's containers. What it returns ends the VM.
func (v vm) boot(ctx context.Context) (func(context.Context) error, error) {
	devices, err := v.devices()
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, d := range devices {
		nodes = append(nodes, d.Path)
	}
	if err := v.enterCgroup(); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	programs, err := guestPrograms(filepath.Join(filepath.Dir(filepath.Dir(self)), guestDir))
	if err != nil {
		return nil, err
	}
	running, err := nested.Start(ctx, nested.Config{Nodes: nodes, Files: programs})
	if err != nil {
		return nil, err
	}
	endpoints, err := v.endpoints()
	if err == nil {
		err = configure(ctx, running, endpoints)
	}
	if err == nil {
		err = v.writeReport(ctx, running)
	}
	if err == nil && len(endpoints) == 0 {
		err = running.Pause()
	}
	if err != nil {
		return nil, errors.Join(err, running.Kill())
	}
	stop, err := v.serve(ctx, &asked{vm: running, paused: len(endpoints) == 0})
	if err != nil {
		return nil, errors.Join(err, running.Kill())
	}
	return func(context.Context) error { return errors.Join(stop(), running.Kill()) }, nil
}

// configure gives the endpoints' interfaces in the VM their addresses, as Kata's agent does.
func configure(ctx context.Context, running *nested.VM, endpoints []taken) error {
	for _, e := range endpoints {
		for _, address := range e.Addresses {
			if strings.Contains(address, ":") {
				continue // the VM of the lab configures IPv4
			}
			if err := running.Configure(ctx, e.MAC, address); err != nil {
				return fmt.Errorf("configure %s: %w", e.Name, err)
			}
		}
	}
	return nil
}

func (v vm) writeReport(ctx context.Context, running *nested.VM) error {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	report, err := running.Report(ctx)
	if err != nil {
		return err
	}
	text, err := json.Marshal(report)
	if err != nil {
		return err
	}
	return os.WriteFile(v.file(reportFile), text, 0o644)
}
