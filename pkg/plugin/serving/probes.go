package serving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// Probes returns the handler of /healthz and /readyz. ready returns why the program is not ready, or "". /healthz answers as long as
// the process does: a program that is slow, or that waits for the kernel, gains nothing by a restart.
func Probes(ready func() string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, "") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, ready()) })
	return mux
}

// answer writes "ok", or the problem with status 503.
func answer(w http.ResponseWriter, problem string) {
	if problem != "" {
		http.Error(w, problem, http.StatusServiceUnavailable)
		return
	}
	_, _ = io.WriteString(w, "ok\n") // the client may have disconnected
}

// ListenProbes serves [Probes] at a Unix socket, which only the program's own user can open. Nobody outside of its pod reaches it, so
// nobody else can make the kubelet restart the program. It replaces the socket of a program that has ended. An empty path is none: the
// server is nil.
func ListenProbes(ctx context.Context, socket string, ready func() string) (*Server, error) {
	if socket == "" {
		return nil, nil
	}
	if err := removeStale(ctx, socket); err != nil {
		return nil, fmt.Errorf("listen for probes: %w", err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listen for probes: %w", err)
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for probes: %w", err), l.Close())
	}
	s := newServer(l, Probes(ready))
	s.http.SetKeepAlivesEnabled(false)
	return s, nil
}

// removeStale removes a socket at which no program answers.
func removeStale(ctx context.Context, socket string) error {
	info, err := os.Lstat(socket)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is not a socket: remove it, or name another path", socket)
	}
	var d net.Dialer
	if c, err := d.DialContext(ctx, "unix", socket); err == nil {
		_ = c.Close()
		return fmt.Errorf("another program serves %s: name another path", socket)
	}
	return os.Remove(socket)
}

// AddProbeSocket adds the flag of the socket of probes.
func AddProbeSocket(f *pflag.FlagSet, socket *string) {
	f.StringVar(socket, "probe-socket", "", "`path` of the Unix socket at which the subcommand probe asks whether the program works; empty: none")
}

// ProbeCommand returns the subcommand by which the kubelet asks a program whether it works. It exits with [command.Failed] if the
// program does not answer, or says why it is not ready.
func ProbeCommand(program string) *cobra.Command {
	var socket string
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "probe live|ready",
		Short: "Ask the running program whether it works, as an exec probe",
		Long: "probe asks the program at --probe-socket, which the kubelet runs beside it in its container:\n\n" +
			"  live   it answers. A restart helps one that does not, and none that is slow\n" +
			"  ready  it does its work; otherwise the output says why not\n\n" +
			"Exit codes:\n" +
			"  0  yes\n" +
			"  1  no, or no answer; the message says why\n" +
			"  2  the command line is wrong",
		Example: "  " + program + " probe live --probe-socket=/run/kata-vfio-probes/probes.sock\n" +
			"  " + program + " probe ready --probe-socket=/run/kata-vfio-probes/probes.sock --timeout=5s",
		Args: command.ExactArgs(1, "live or ready"), ValidArgs: []string{"live", "ready"},
		RunE: func(cmd *cobra.Command, args []string) error {
			page, ok := map[string]string{"live": "/healthz", "ready": "/readyz"}[args[0]]
			if !ok {
				return command.Usagef("probe %q: want live or ready", args[0])
			}
			if socket == "" {
				return command.Usagef("--probe-socket is empty: name the socket of the running program")
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), limit)
			defer cancel()
			return AskProbe(ctx, socket, page)
		},
	}
	AddProbeSocket(cmd.Flags(), &socket)
	cmd.Flags().DurationVar(&limit, "timeout", 20*time.Second, "how long to wait for the answer")
	return cmd
}

// maxAnswer limits the part of an answer that is shown.
const maxAnswer = 4 << 10

// AskProbe asks for a page of [Probes]. The error has the program's answer.
func AskProbe(ctx context.Context, socket, page string) error {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://probe"+page, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", page, err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("the program does not answer: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer to %s: %w", page, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s", strings.TrimSpace(string(text)))
	}
	return nil
}
