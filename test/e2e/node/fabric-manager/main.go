// Command fabric-manager stands in for NVIDIA's Fabric Manager on a node: the scripted one of the tests, behind a unix socket. The stub of
// NVIDIA's library (test/nvfm) asks it, with a line for each call, and gets a line with the code and one for each partition. Nothing of
// the protocol is NVIDIA's.
//
//	fabric-manager -socket /run/kata-vfio-fabric/fabricmanager.sock 0=1,3 1=1 2=3     serve these partitions of modules
//	fabric-manager -socket /run/kata-vfio-fabric/fabricmanager.sock -ask partitions   ask it, as the library does
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
)

func main() {
	socket := flag.String("socket", "", "path of the socket")
	resume := flag.Bool("resume", false, "wait for the list of active partitions, as after a restart with FABRIC_MODE_RESTART=1")
	call := flag.String("ask", "", "make a call, and print the answer")
	flag.Parse()
	var err error
	if *call != "" {
		err = ask(*socket, *call)
	} else {
		err = serve(*socket, *resume, flag.Args())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fabric-manager:", err)
		os.Exit(1)
	}
}

func ask(socket, call string) error {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer conn.Close() // it was only read from
	if _, err := fmt.Fprintln(conn, call); err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, conn)
	return err
}

// resumeLimit is how long NVIDIA's waits for the list of active partitions after a restart. Then it ends.
const resumeLimit = time.Minute

// setActivated is the call with the list.
const setActivated = "setActivated"

// serve answers calls until it is killed. Only root reaches the directory, as on a node that bootstrap has configured.
func serve(socket string, resume bool, partitions []string) error {
	list, err := parse(partitions)
	if err != nil {
		return err
	}
	m := fabrictest.New(list)
	var wait *time.Timer
	if resume {
		m.Restart(true)
		wait = time.AfterFunc(resumeLimit, func() {
			fmt.Fprintf(os.Stderr, "fabric-manager: got no list of active partitions in %s\n", resumeLimit)
			os.Exit(1)
		})
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		call, err := answer(m, conn)
		if err != nil {
			fmt.Fprintln(os.Stderr, "answer:", err)
		}
		if wait != nil && err == nil && call == setActivated {
			wait.Stop()
		}
	}
}

// parse reads partitions: a number and the modules, such as 0=1,3.
func parse(partitions []string) (fabric.List, error) {
	var list fabric.List
	for _, text := range partitions {
		id, modules, _ := strings.Cut(text, "=")
		numbers, err := ints(id + "," + modules)
		if err != nil {
			return nil, fmt.Errorf("partition %q: %w", text, err)
		}
		list = append(list, fabrictest.Partition(numbers[0], numbers[1:]...))
	}
	return list, list.Check()
}

func ints(text string) ([]int, error) {
	var all []int
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// answer reads one call, makes it, writes the answer, and returns the call's name.
func answer(m *fabrictest.Manager, conn net.Conn) (string, error) {
	defer conn.Close() // what could not be written is an error already
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", err
	}
	call, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	list, err := do(m, call, rest)
	code := fabric.Code(0)
	if err != nil {
		refused, ok := errors.AsType[*fabric.CodeError](err)
		if !ok {
			return call, fmt.Errorf("%s: %w", call, err)
		}
		code = refused.Code
	}
	fmt.Fprintf(os.Stderr, "%s: %d\n", strings.TrimSpace(call+" "+rest), code)
	var text strings.Builder
	fmt.Fprintf(&text, "%d\n", int(code))
	for i := range list {
		active := 0
		if list[i].Active {
			active = 1
		}
		fmt.Fprintf(&text, "partition %d %d %s\n", list[i].ID, active, strings.Trim(fmt.Sprint(list[i].Modules()), "[]"))
	}
	_, err = io.WriteString(conn, text.String())
	return call, err
}

// do makes a call. What the library calls besides, such as connect, has no effect.
func do(m *fabrictest.Manager, call, rest string) (fabric.List, error) {
	ctx := context.Background()
	switch call {
	case "partitions":
		return m.Partitions(ctx)
	case "activate", "deactivate", setActivated:
	default:
		return nil, nil
	}
	ids, err := ints(rest)
	if err != nil {
		return nil, err
	}
	switch {
	case call == setActivated:
		return nil, m.SetActivated(ctx, ids)
	case len(ids) != 1:
		return nil, fmt.Errorf("%q names %d partitions, not 1", rest, len(ids))
	case call == "activate":
		return nil, m.Activate(ctx, ids[0])
	}
	return nil, m.Deactivate(ctx, ids[0])
}
