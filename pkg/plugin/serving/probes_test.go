package serving_test

import (
	"bytes"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/serving"
)

// probed serves probes at a new socket until the test ends.
func probed(t *testing.T, ready func() string) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "probes.sock")
	s, err := serving.ListenProbes(t.Context(), socket, ready)
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	return socket
}

// probe runs the subcommand as the kubelet does.
func probe(t *testing.T, args ...string) error {
	t.Helper()
	cmd := serving.ProbeCommand("kata-vfio-plugin")
	var out bytes.Buffer
	command.Setup(cmd, &out, &out)
	cmd.SetArgs(append([]string{}, args...))
	return cmd.ExecuteContext(t.Context())
}

func TestProbeAnswersAtItsSocket(t *testing.T) {
	problem := "not published yet"
	at := "--probe-socket=" + probed(t, func() string { return problem })
	if err := probe(t, "live", at); err != nil {
		t.Errorf("live: %v", err)
	}
	err := probe(t, "ready", at)
	if err == nil || !strings.Contains(err.Error(), "not ready: not published yet") || command.ExitCode(err) != command.Failed {
		t.Errorf("ready before it is: %v", err)
	}
	problem = ""
	if err := probe(t, "ready", at); err != nil {
		t.Errorf("ready: %v", err)
	}
}

func TestProbeSaysWhatIsWrong(t *testing.T) {
	silent, err := net.Listen("unix", filepath.Join(t.TempDir(), "silent.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, tt := range map[string]struct {
		args []string
		want string
		code int
	}{
		"another page": {[]string{"healthz", "--probe-socket=a"}, "want live or ready", command.Usage},
		"no socket":    {[]string{"live"}, "--probe-socket is empty", command.Usage},
		"nobody":       {[]string{"live", "--probe-socket=" + filepath.Join(t.TempDir(), "none")}, "does not answer", command.Failed},
		"a process that hangs": {
			[]string{"live", "--timeout=50ms", "--probe-socket=" + silent.Addr().String()}, "does not answer", command.Failed,
		},
	} {
		err := probe(t, tt.args...)
		if err == nil || !strings.Contains(err.Error(), tt.want) || command.ExitCode(err) != tt.code {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestProbeSocketIsItsOwnersAlone: and an ended program's is replaced, but no other file, and not that of a running one.
func TestProbeSocketIsItsOwnersAlone(t *testing.T) {
	ready := func() string { return "" }
	socket := probed(t, ready)
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v (%v)", info, err)
	}
	if _, err := serving.ListenProbes(t.Context(), socket, ready); err == nil || !strings.Contains(err.Error(), "another program serves") {
		t.Errorf("the socket of a running program: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := serving.ListenProbes(t.Context(), file, ready); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file: %v", err)
	}
	stale := filepath.Join(t.TempDir(), "stale.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	s, err := serving.ListenProbes(t.Context(), stale, ready)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := os.Stat(stale); !os.IsNotExist(err) && err == nil {
		t.Errorf("a closed server leaves its socket: %v, want %v", err, fs.ErrNotExist)
	}
	if s, err := serving.ListenProbes(t.Context(), "", ready); s != nil || err != nil {
		t.Errorf("no socket: %v, %v", s, err)
	}
}
