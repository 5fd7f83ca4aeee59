package main

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/test/lab/nested/protocol"
)

// scriptedVM notes what it is asked, and hangs where it is told to.
type scriptedVM struct {
	did   []string
	hangs bool
}

func (s *scriptedVM) Bytes(ctx context.Context, what protocol.Bytes) ([]byte, error) {
	s.did = append(s.did, "bytes of "+what.File)
	if s.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return []byte("here"), nil
}

func (s *scriptedVM) Run(_ context.Context, args ...string) (protocol.RunResult, error) {
	s.did = append(s.did, "run "+strings.Join(args, " "))
	if args[0] == "missing" {
		return protocol.RunResult{}, errors.New("no such program")
	}
	return protocol.RunResult{Code: 3, Stdout: "out"}, nil
}

func (s *scriptedVM) Pause() error  { s.did = append(s.did, "pause"); return nil }
func (s *scriptedVM) Resume() error { s.did = append(s.did, "resume"); return nil }

// served serves a VM in a directory of its own until the test ends.
func served(t *testing.T, a *asked) (path string, stop func() error) {
	t.Helper()
	v := vm{dir: t.TempDir()}
	stop, err := v.serve(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	return v.file(controlFile), stop
}

// askVM sends a request as a container does.
func askVM(t *testing.T, path, request string) protocol.Reply {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(request + "\n")); err != nil {
		t.Fatal(err)
	}
	var reply protocol.Reply
	if err := json.NewDecoder(conn).Decode(&reply); err != nil {
		t.Fatal(err)
	}
	return reply
}

func TestContainersHaveTheirVMWork(t *testing.T) {
	for name, test := range map[string]struct {
		running bool // all the time
		request string
		did     []string
		want    protocol.Reply
	}{
		"bytes": {
			request: `{"bytes": {"file": "resource0", "read": 4}}`,
			did:     []string{"resume", "bytes of resource0", "pause"}, want: protocol.Reply{Bytes: []byte("here")},
		},
		"a program": {
			request: `{"run": {"args": ["/bin/wipe", "memory"]}}`,
			did:     []string{"resume", "run /bin/wipe memory", "pause"}, want: protocol.Reply{Run: &protocol.RunResult{Code: 3, Stdout: "out"}},
		},
		"a VM that runs all the time stays so": {
			running: true, request: `{"bytes": {"file": "resource0"}}`, did: []string{"bytes of resource0"}, want: protocol.Reply{Bytes: []byte("here")},
		},
		"a program that is not there": {
			request: `{"run": {"args": ["missing"]}}`, did: []string{"resume", "run missing", "pause"},
			want: protocol.Reply{Error: "no such program", Run: &protocol.RunResult{}},
		},
		"the VM's end is not a container's to ask for": {
			request: `{"powerOff": true}`, did: []string{"resume", "pause"},
			want: protocol.Reply{Error: "a container can ask for bytes, or for the run of a program"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scriptedVM{}
			path, stop := served(t, &asked{vm: s, paused: !test.running})
			got := askVM(t, path, test.request)
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("reply (-want +got):\n%s", diff)
			}
			if !slices.Equal(s.did, test.did) {
				t.Errorf("the VM did %q; want %q", s.did, test.did)
			}
		})
	}
}

// TestEndOfVMDoesNotWaitForContainer: a request that hangs, as an access to a device may, and a container that says nothing.
func TestEndOfVMDoesNotWaitForContainer(t *testing.T) {
	for name, request := range map[string]string{"a request hangs": `{"bytes": {"file": "resource0"}}` + "\n", "no request comes": ""} {
		t.Run(name, func(t *testing.T) {
			path, stop := served(t, &asked{vm: &scriptedVM{hangs: true}, paused: true})
			conn, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte(request)); err != nil {
				t.Fatal(err)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			if _, err := net.Dial("unix", path); err == nil {
				t.Error("the VM is served after its end")
			}
		})
	}
}

func TestVMHasProgramsOfDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "wipe"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		dir  string
		want map[string]string
	}{
		"a program":    {dir, map[string]string{"/bin/wipe": filepath.Join(dir, "wipe")}},
		"no directory": {filepath.Join(dir, "none"), map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := guestPrograms(test.dir)
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("programs, %v (-want +got):\n%s", err, diff)
			}
		})
	}
}
