package remote_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/test/lab/remote"
)

// serve starts a server on the loopback and returns its address.
func serve(t *testing.T, s *remote.Server) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Env = append(s.Env, "PATH="+os.Getenv("PATH"))
	go func() { _ = s.Serve(t.Context(), l) }() // ends with the test
	return l.Addr().String()
}

func TestOutput(t *testing.T) {
	addr := serve(t, &remote.Server{BootID: "boot"})
	cmd := remote.NewCommand(t.Context(), addr, "sh", "-c", `cat; echo "$A" >&2`)
	cmd.Env, cmd.Stdin = []string{"A=b"}, strings.NewReader(strings.Repeat("x", 3<<20))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil || len(out) != 3<<20 || errs.String() != "b\n" {
		t.Errorf("%d bytes, %q, %v; want %d bytes, \"b\\n\"", len(out), errs.String(), err, 3<<20)
	}
	hi, err := remote.Probe(t.Context(), addr)
	if err != nil || hi.BootID != "boot" {
		t.Errorf("Probe: %+v, %v", hi, err)
	}
}

func TestExit(t *testing.T) {
	addr := serve(t, &remote.Server{})
	for _, tt := range []struct {
		script string
		code   int
		reason string
	}{
		{"exit 7", 7, ""},
		{"kill -9 $$", -1, "signal: killed"},
	} {
		err := remote.NewCommand(t.Context(), addr, "sh", "-c", tt.script).Run()
		var failed *remote.ExitError
		if !errors.As(err, &failed) || failed.Code != tt.code || failed.Reason != tt.reason {
			t.Errorf("%s: %v, want status %d %s", tt.script, err, tt.code, tt.reason)
		}
	}
	err := remote.NewCommand(t.Context(), addr, "no-such-program").Run()
	if err == nil || !strings.Contains(err.Error(), exec.ErrNotFound.Error()) {
		t.Errorf("a program that does not exist: %v", err)
	}
}

// A client that goes away takes its command and the command's children along.
func TestCancel(t *testing.T) {
	addr := serve(t, &remote.Server{})
	ctx, cancel := context.WithCancelCause(t.Context())
	errEnough := errors.New("enough")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := remote.NewCommand(ctx, addr, "sh", "-c", "sleep 600 & echo $!; wait")
	cmd.Stdout = w
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	line := make([]byte, 16)
	n, err := r.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	cancel(errEnough)
	if err := <-ended; !errors.Is(err, errEnough) {
		t.Errorf("Run: %v, want the context's cause", err)
	}
	child := "/proc/" + strings.TrimSpace(string(line[:n])) + "/stat"
	for end := time.Now().Add(30 * time.Second); alive(child); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s is still alive", child)
		}
	}
}

// alive tells whether a process is there and is not a zombie.
func alive(stat string) bool {
	text, err := os.ReadFile(stat)
	return err == nil && !bytes.Contains(text, []byte(") Z "))
}

// A server that accepts and says nothing is not up.
func TestProbeSilentServer(t *testing.T) {
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := remote.Probe(ctx, l.Addr().String()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Probe: %v, want %v", err, context.DeadlineExceeded)
	}
}
