package podres_test

import (
	"encoding/json"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/podres"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// shimRuns is what a shim of the tests says.
const shimRuns = "running"

// startShim starts a process in the directory, with the arguments, that lives
// as long as the test. It runs when startShim returns: the race detector starts
// a process a second time, during which it has no arguments.
func startShim(t *testing.T, dir string, args ...string) int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{"containerd-shim-kata-v2"}, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PODRES_TEST_SHIM=1", "GORACE=atexit_sleep_ms=0")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(stdout, make([]byte, len(shimRuns))); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// netNS is the pod's network namespace in all bundles.
const netNS = "/var/run/netns/cni-1"

// writeBundle writes a config.json with the annotations.
func writeBundle(t *testing.T, dir string, annotations map[string]string) {
	t.Helper()
	data, err := json.Marshal(map[string]any{
		"ociVersion": "1.3.0", "annotations": annotations,
		"linux": map[string]any{"namespaces": []any{map[string]any{"type": "pid"}, map[string]any{"type": "network", "path": netNS}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "config.json"), string(data))
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func containerd() map[string]string {
	return map[string]string{
		"io.kubernetes.cri.sandbox-id": "s1", "io.kubernetes.cri.sandbox-uid": "p1",
		"io.kubernetes.cri.sandbox-namespace": namespace, "io.kubernetes.cri.sandbox-name": "db-0",
		"io.kubernetes.cri.container-type": "sandbox",
	}
}

func crio() map[string]string {
	return map[string]string{
		"io.kubernetes.cri-o.SandboxID": "s1", "io.kubernetes.pod.uid": "p1",
		"io.kubernetes.pod.namespace": namespace, "io.kubernetes.pod.name": "db-0",
	}
}

// with returns the annotations, changed; an empty value takes one away.
func with(annotations map[string]string, changes ...string) map[string]string {
	out := maps.Clone(annotations)
	for i := 0; i < len(changes); i += 2 {
		if out[changes[i]] = changes[i+1]; changes[i+1] == "" {
			delete(out, changes[i])
		}
	}
	return out
}

func TestBundleTellsTheSandbox(t *testing.T) {
	known := podres.PeerSandbox{ID: "s1", PodNamespace: namespace, PodName: "db-0", PodUID: "p1", NetNS: netNS}
	for name, c := range map[string]struct {
		annotations map[string]string
		dir         string // s1 when empty
		want        podres.PeerSandbox
		fails       string
	}{
		"containerd": {annotations: containerd(), want: known},
		"containerd, in another sandbox's directory": {annotations: containerd(), dir: "s9", fails: "directory belongs to sandbox s9"},
		"CRI-O": {annotations: crio(), dir: "overlay-containers/s1/userdata", want: known},
		"CRI-O, with another sandbox's id as a pod's annotation": {
			annotations: with(crio(), "io.kubernetes.cri-o.SandboxID", "victim"), dir: "overlay-containers/s1/userdata", want: known,
		},
		"CRI-O, with a pod's annotation over the kubelet's word": {
			annotations: with(crio(), "io.kubernetes.cri.sandbox-name", "victim"), want: known,
		},
		"containerd without a UID": {
			annotations: with(containerd(), "io.kubernetes.cri.sandbox-uid", ""),
			want:        podres.PeerSandbox{ID: "s1", PodNamespace: namespace, PodName: "db-0", NetNS: netNS},
		},
		"CRI-O, with a pod's annotation as containerd's": {
			annotations: with(crio(), "io.kubernetes.cri.sandbox-id", "s9"), fails: "contradict",
		},
		"no pod": {annotations: map[string]string{}, fails: "no pod sandbox"},
		"no pod name": {
			annotations: with(containerd(), "io.kubernetes.cri.sandbox-name", ""), fails: "no pod sandbox",
		},
		"no namespace on CRI-O": {
			annotations: with(crio(), "io.kubernetes.pod.namespace", ""), fails: "no pod sandbox",
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), c.dir)
			if c.dir == "" {
				dir = filepath.Join(dir, "s1")
			}
			writeBundle(t, dir, c.annotations)
			got, err := podres.Bundles{}.Sandbox(startShim(t, dir))
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("Sandbox = %+v, %v; want an error that says %q", got, err, c.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(podres.PeerSandbox{}, "Unknown", "Shim")); diff != "" {
				t.Errorf("Sandbox (-want +got):\n%s", diff)
			}
			if (got.Unknown == nil) != (got.PodUID != "") {
				t.Errorf("UID %q is unknown because of %v", got.PodUID, got.Unknown)
			}
		})
	}
}

func TestArgumentsNameTheBundleWhereTheDirectoryDoesNot(t *testing.T) {
	tasks := filepath.Join(t.TempDir(), "tasks")
	for _, namespace := range []string{"k8s.io", "other"} {
		writeBundle(t, filepath.Join(tasks, namespace, "s1"), with(containerd(), "io.kubernetes.cri.sandbox-namespace", namespace))
	}
	for _, outside := range []string{"x", "../x/s1"} {
		writeBundle(t, filepath.Join(tasks, outside), containerd())
	}
	for args, want := range map[string]string{
		"-id s1":                        "k8s.io/s1",
		"-namespace other -id s1":       "other/s1",
		"--namespace=other --id=s1":     "other/s1",
		"-address id -debug -id s1":     "k8s.io/s1",
		"-id s2":                        "",
		"-id ../x":                      "",
		"-namespace ../x -id s1":        "",
		"id s1":                         "",
		"-id":                           "",
		"-publish-binary containerd -d": "",
	} {
		t.Run(args, func(t *testing.T) {
			pid := startShim(t, t.TempDir(), strings.Fields(args)...)
			got, err := podres.Bundles{Tasks: tasks}.Sandbox(pid)
			if err != nil {
				t.Fatal(err)
			}
			if want == "" {
				checkUnknown(t, got)
				return
			}
			if got.PodNamespace+"/"+got.ID != want || got.PodUID != "p1" || got.Unknown != nil {
				t.Errorf("Sandbox = %+v; want that of %s", got, want)
			}
		})
	}
}

// TestBundleTellsTheShim: its PID may be another's tomorrow, so that its start time
// is known too.
func TestBundleTellsTheShim(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s1")
	writeBundle(t, dir, containerd())
	pid := startShim(t, dir)
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	mustDo(t, err)
	start, err := sysfs.ParseStartTime(string(stat))
	mustDo(t, err)
	got, err := podres.Bundles{}.Sandbox(pid)
	if want := (journal.Process{PID: pid, StartTime: start}); err != nil || got.Shim != want {
		t.Errorf("Sandbox = %+v, %v; want the shim %+v", got, err, want)
	}
}

// checkUnknown checks that nothing is known, and why.
func checkUnknown(t *testing.T, got podres.PeerSandbox) {
	t.Helper()
	if got.Unknown == nil || got != (podres.PeerSandbox{Unknown: got.Unknown}) {
		t.Errorf("Sandbox = %+v; want nothing but why", got)
	}
}

func TestBundleThatCantBeReadIsUnknown(t *testing.T) {
	for name, write := range map[string]func(t *testing.T, path string){
		"missing":    func(*testing.T, string) {},
		"no JSON":    func(t *testing.T, path string) { writeFile(t, path, "{") },
		"a device":   func(t *testing.T, path string) { mustDo(t, os.Symlink("/dev/zero", path)) },
		"a pipe":     writePipe,
		"boundless":  func(t *testing.T, path string) { writeFile(t, path, boundless()) },
		"no objects": func(t *testing.T, path string) { writeFile(t, path, `{"annotations": []}`) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "config.json"))
			pid := startShim(t, dir)
			got, err := podres.Bundles{}.Sandbox(pid)
			if err != nil {
				t.Fatal(err)
			}
			checkUnknown(t, got)
		})
	}
}

// boundless is a config.json whose beginning alone would do.
func boundless() string {
	return `{"annotations": {"io.kubernetes.cri.sandbox-id": "s1", "io.kubernetes.cri.sandbox-namespace": "a",
		"io.kubernetes.cri.sandbox-name": "b", "io.kubernetes.cri.sandbox-uid": "c"}}` + strings.Repeat(" ", 5<<20)
}

// writePipe makes a pipe with a writer who says nothing.
func writePipe(t *testing.T, path string) {
	t.Helper()
	mustDo(t, syscall.Mkfifo(path, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	mustDo(t, err)
	t.Cleanup(func() { _ = f.Close() })
}

func mustDo(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestProcessThatIsGoneIsUnknown(t *testing.T) {
	cmd := exec.Command("/bin/true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	got, err := podres.Bundles{}.Sandbox(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	checkUnknown(t, got)
}
