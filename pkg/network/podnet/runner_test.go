package podnet_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/network/podnet"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// wantFailed checks a plugin's error: whether nothing was taken for sure, and
// what it says, in one line.
func wantFailed(t *testing.T, err error, nothing bool, words ...string) {
	t.Helper()
	failed, ok := errors.AsType[*podnet.PluginError](err)
	if !ok || failed.Nothing != nothing {
		t.Errorf("error %v (%+v), want a PluginError with Nothing %t", err, failed, nothing)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q lacks %q", err, word)
		}
	}
	if strings.Contains(err.Error(), "\n") || len(err.Error()) > 5000 {
		t.Errorf("error of %d bytes: %q", len(err.Error()), err)
	}
}

// script makes a plugin of a shell script. It has its directory in $0.
func script(t *testing.T, text string) (*podnet.Plugins, *plan.Lease) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "scripted"), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &podnet.Plugins{Dirs: []string{dir}, Limit: 10 * time.Second}, &plan.Lease{
		Pool: "tenants", Plugin: "scripted", Config: []byte(`{"cniVersion":"1.0.0","name":"kata-vfio-tenants","ipam":{"type":"scripted"}}`),
		Container: "0f8fad5b-vf", Interface: "net1", Args: "IgnoreUnknown=1;K8S_POD_NAME=train",
	}
}

// TestRunnerPassesCNIConfiguration checks the environment and stdin that the CNI specification requires.
func TestRunnerPassesCNIConfiguration(t *testing.T) {
	p, l := script(t, `(env | grep ^CNI_ | sort; cat) >>"${0%/*}/told"; echo '{"ips":[{"address":"192.0.2.5/24"}]}'`)
	if _, err := p.Add(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	if err := p.Delete(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(p.Dirs[0], "told"))
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, command := range []string{"ADD", "DEL"} {
		fmt.Fprintf(&want, "CNI_ARGS=%s\nCNI_COMMAND=%s\nCNI_CONTAINERID=%s\nCNI_IFNAME=net1\nCNI_NETNS=/run/kata-vfio/no-netns\nCNI_PATH=%s\n%s",
			l.Args, command, l.Container, p.Dirs[0], l.Config)
	}
	if diff := cmp.Diff(want.String(), string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPluginsThatFail are told from those that may have taken an address.
func TestPluginsThatFail(t *testing.T) {
	for text, want := range map[string]struct {
		nothing bool
		says    string
	}{
		`echo '{"code":11,"msg":"try again","details":"the lock is held"}'; exit 1`: {true, "try again; the lock is held"},
		`echo 'panic: at the disco' >&2; exit 2`:                                    {true, "exit status 2 (it printed \"panic: at the disco\")"},
		`echo garbage; exit 1`:                                                      {true, `exit status 1, and it says "garbage\n"`},
		`head -c 100000 /dev/zero | tr '\0' x >&2; exit 1`:                          {true, `it printed "xxx`},
		`kill -9 $$`:   {false, "signal: killed"},
		`echo garbage`: {false, "its result: failed to unmarshal"},
		`true`:         {false, "its result: "},
		`echo null`:    {false, "its result: it has no address"},
		`echo '{}'`:    {false, "its result: it has no address"},
		`echo '{"cniVersion":"9.9.9","ips":[{"address":"192.0.2.5/24"}]}'`:                        {false, "its result: unsupported CNI result version"},
		`echo '{"ips":[{"address":"192.0.2.5"}]}'`:                                                {false, "its result: invalid CIDR"},
		`echo '{"ips":[{"address":"192.0.2.5/24"}],"routes":[{"dst":"192.0.3.0/24","table":7}]}'`: {false, "table and scope can't be had here"},
		`yes '{"ips":[{"address":"192.0.2.5/24"}]}'`:                                              {false, "more than 1048576 bytes"},
		`echo '{"ips":[{"address":"192.0.2.5/24"}]}'; exit 1`:                                     {true, "exit status 1"},
		`printf %s '{"msg":"no\nnewline"}'; exit 1`:                                               {true, "no; newline"},
	} {
		t.Run(text, func(t *testing.T) {
			p, l := script(t, text)
			_, err := p.Add(t.Context(), l)
			wantFailed(t, err, want.nothing, "CNI plugin scripted ADD: ", want.says)
		})
	}
}

// TestPluginThatIsNotThere: the user reads where it was looked for.
func TestPluginThatIsNotThere(t *testing.T) {
	p, l := script(t, "true")
	l.Plugin = "missing"
	for _, err := range []error{p.Find(l), p.Delete(t.Context(), l)} {
		if err == nil || !strings.Contains(err.Error(), "CNI plugin missing is not in "+p.Dirs[0]) {
			t.Errorf("error %v", err)
		}
	}
	_, err := p.Add(t.Context(), l)
	wantFailed(t, err, true, "CNI plugin missing is not in ")
	l.Plugin = "scripted"
	if err := os.Chmod(filepath.Join(p.Dirs[0], "scripted"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = p.Add(t.Context(), l)
	wantFailed(t, err, true, "permission denied")
}

// TestPluginThatHangs is killed with all that it has started.
func TestPluginThatHangs(t *testing.T) {
	for name, text := range map[string]string{
		"itself":        `echo $$ >"${0%/*}/pid"; exec sleep 600`,
		"by its child":  `sleep 600 & echo $! >"${0%/*}/pid"; wait`,
		"after its end": `sleep 600 & echo $! >"${0%/*}/pid"`,
	} {
		t.Run(name, func(t *testing.T) {
			p, l := script(t, text)
			p.Limit = 500 * time.Millisecond
			start := time.Now()
			_, err := p.Add(t.Context(), l)
			if took := time.Since(start); took > 8*time.Second {
				t.Errorf("it took %v", took)
			}
			wantFailed(t, err, false)
			awaitEnd(t, filepath.Join(p.Dirs[0], "pid"))
		})
	}
}

// TestCanceledCall names the caller's reason.
func TestCanceledCall(t *testing.T) {
	p, l := script(t, "echo about to >&2; exec sleep 600")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(500*time.Millisecond, func() { cancel(errors.New("the kubelet has gone")) })
	_, err := p.Add(ctx, l)
	wantFailed(t, err, false, "killed: the kubelet has gone (it printed \"about to\")")
}

// awaitEnd waits until the process whose ID is in a file has ended.
func awaitEnd(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid := strings.TrimSpace(string(data))
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("process %s is still there: %s", pid, stat)
		}
	}
}

// orphanDir names the directory of the plugin that a second process of this
// test calls.
const orphanDir = "IPAM_TEST_ORPHAN_DIR"

// TestPluginDoesNotOutliveItsCaller: it could take an address after recovery
// has returned it.
func TestPluginDoesNotOutliveItsCaller(t *testing.T) {
	if dir := os.Getenv(orphanDir); dir != "" {
		p := &podnet.Plugins{Dirs: []string{dir}, Limit: time.Minute}
		_, _ = p.Add(t.Context(), &plan.Lease{Plugin: "scripted", Config: []byte("{}"), Container: "a", Interface: "b"})
		return
	}
	p, _ := script(t, `echo $$ >"${0%/*}/tmp"; mv "${0%/*}/tmp" "${0%/*}/pid"; exec sleep 600`)
	caller := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPluginDoesNotOutliveItsCaller$")
	caller.Env = append(os.Environ(), orphanDir+"="+p.Dirs[0])
	if err := caller.Start(); err != nil {
		t.Fatal(err)
	}
	pid := filepath.Join(p.Dirs[0], "pid")
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(pid); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the plugin was not started")
		}
	}
	if err := caller.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = caller.Wait()
	awaitEnd(t, pid)
}
