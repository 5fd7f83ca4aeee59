package dra_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kata-vfio/kata-vfio/pkg/bind"
	"github.com/kata-vfio/kata-vfio/pkg/plugin/dra"
	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/control"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
	"github.com/kata-vfio/kata-vfio/test/plugintest"
)

var update = flag.Bool("update", false, "write the recorded stack to pkg/README.md")

// The way of a claim is what a reader follows from the kubelet's call to the write that binds a device. Closures count: a
// reader passes them too.
const (
	mostFrames, mostFiles, mostPackages, mostInterfaces = 13, 6, 5, 2

	wayBegins, wayEnds = "plugin/dra.(*Plugin).PrepareResourceClaims", "sysfs/control.(*RootWriter).Write"
)

// TestClaimsWay records the stack of the write to drivers_probe, over all goroutines from the kubelet's call on, and
// compares it with pkg/README.md.
func TestClaimsWay(t *testing.T) {
	if out := os.Getenv(wayVariable); out != "" {
		recordWay(t, out)
		return
	}
	way := recordedWay(t)
	t.Logf("%d frames, %d files, %d packages:\n%s", len(way), len(distinct(way, frame.file)), len(distinct(way, frame.pkg)), chain(way))
	for _, limit := range []struct {
		of        string
		got, most int
	}{
		{"frames", len(way), mostFrames},
		{"files", len(distinct(way, frame.file)), mostFiles},
		{"packages", len(distinct(way, frame.pkg)), mostPackages},
		{"interfaces", interfaces(t, way), mostInterfaces},
	} {
		if limit.got > limit.most {
			t.Errorf("a claim's way has %d %s, want at most %d", limit.got, limit.of, limit.most)
		}
	}
	const page = "../../README.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := withChain(t, string(text), chain(way))
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("%s shows another way of a claim: run `go test ./pkg/plugin/dra -run TestClaimsWay -update`", page)
	}
}

// chainMark begins the block of pkg/README.md with the chain.
const chainMark = "```text\n"

// withChain returns the page with the chain in its block.
func withChain(t *testing.T, page, chain string) string {
	t.Helper()
	before, rest, found := strings.Cut(page, chainMark)
	_, after, ends := strings.Cut(rest, "```\n")
	if !found || !ends {
		t.Fatalf("the page has no block that begins with %q", chainMark)
	}
	return before + chainMark + chain + "```\n" + after
}

// A frame is a function of the stack and the file that declares it: "plugin/dra.(*Plugin).prepare", "plugin/dra/plugin.go".
type frame struct{ function, path string }

func (f frame) file() string { return f.path }
func (f frame) pkg() string  { return path.Dir(f.path) }

func distinct(way []frame, of func(frame) string) []string {
	var all []string
	for _, f := range way {
		all = append(all, of(f))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// chain is a line for each frame, the kubelet's call first.
func chain(way []frame) string {
	var b strings.Builder
	for i, f := range way {
		fmt.Fprintf(&b, "%2d  %-28s %s\n", i+1, f.path, strings.TrimPrefix(f.function, path.Dir(f.path)+"."))
	}
	return b.String()
}

// interfaces counts those through which the way goes on. Between two packages, or two parts of one, a field or parameter
// says what is called.
func interfaces(t *testing.T, way []frame) (n int) {
	t.Helper()
	field := func(of any, name string) reflect.Type {
		f, ok := reflect.TypeOf(of).FieldByName(name)
		if !ok {
			t.Fatalf("%T has no field %s", of, name)
		}
		return f.Type
	}
	joints := map[string]reflect.Type{
		"plugin/dra > prepare":      field(dra.PluginConfig{}, "Claims"),
		"prepare > prepare/effects": field(prepare.Config{}, "Parts"),
		"prepare/effects > bind":    field(effects.Parts{}, "Executor"),
		"bind > sysfs/control":      reflect.TypeOf(bind.New).In(1),
	}
	kinds := []reflect.Type{reflect.TypeOf(control.New).In(0)} // a Control and its Writer are of one package
	for i := range way[1:] {
		from, to := way[i].pkg(), way[i+1].pkg()
		if from == to {
			continue
		}
		joint, known := joints[from+" > "+to]
		if !known {
			t.Fatalf("the way goes from %s to %s: name in this test through what", from, to)
		}
		kinds = append(kinds, joint)
	}
	for _, kind := range kinds {
		if kind.Kind() == reflect.Interface {
			n++
		}
	}
	return n
}

// wayVariable names the file to which the process with recorded ancestors writes its stack.
const wayVariable = "KATA_VFIO_WAY"

// recordedWay runs this test in a process whose goroutines know the stacks that started them, which is a setting of the
// runtime at its start (GODEBUG in the runtime package's documentation).
func recordedWay(t *testing.T) []frame {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "stack")
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestClaimsWay$", "-test.count=1")
	cmd.Env = append(os.Environ(), "GODEBUG=tracebackancestors=10", wayVariable+"="+out)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	stack, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	way := parseWay(string(stack))
	if len(way) == 0 || way[0].function != wayBegins || way[len(way)-1].function != wayEnds {
		t.Fatalf("the stack does not lead from %s to %s:\n%s\n%s", wayBegins, wayEnds, chain(way), stack)
	}
	return way
}

// parseWay returns the product's frames of a stack, the kubelet's call first.
func parseWay(stack string) []frame {
	const module = "github.com/kata-vfio/kata-vfio/pkg/"
	var way []frame
	lines := strings.Split(stack, "\n")
	for i := 0; i+1 < len(lines); i++ {
		function, ours := strings.CutPrefix(lines[i], module)
		_, file, isPath := strings.Cut(lines[i+1], "/pkg/")
		if !ours || !isPath || strings.HasSuffix(strings.Split(file, ":")[0], "_test.go") || strings.HasPrefix(function, "sysfs/sysfstest") {
			continue
		}
		f := frame{function[:strings.LastIndex(function, "(")], strings.Split(file, ":")[0]}
		way = append(way, f)
		if f.function == wayBegins {
			break
		}
	}
	slices.Reverse(way)
	return way
}

// recordWay prepares a claim with the writer that the plugin has, and writes the stack of its last write to a file.
func recordWay(t *testing.T, out string) {
	n := plugintest.New(t)
	n.Kernel.AddGPU(0x3b)
	w := &wayWriter{t: t, kernel: n.Kernel, root: t.TempDir()}
	n.Reopen(func(c *prepare.Config) {
		c.Parts.Executor = bind.New(n.FS, control.New(w, n.FS, 10*time.Second), n.Kernel, n.Kernel.Exclude)
	})
	c := plugintest.Allocated("uid-1", "gpu-0000-3b-00-0")
	k := plugintest.Serve(t, n, n.Claims, "", c)
	if result := k.Prepare(c)["uid-1"]; result.Error != "" {
		t.Fatal(result.Error)
	}
	if w.name != "sys/bus/pci/drivers_probe" {
		t.Fatalf("the last write is to %s, want the one that binds", w.name)
	}
	if err := os.WriteFile(out, w.last, 0o600); err != nil {
		t.Fatal(err)
	}
}

// wayWriter passes writes on to the scripted kernel. Before, it has [control.RootWriter] write to a pipe that nobody reads
// yet, and keeps its stack.
type wayWriter struct {
	t      *testing.T
	kernel *sysfstest.Kernel
	root   string

	mu   sync.Mutex // guards all below
	name string     // of the last write
	last []byte     // its stack
}

// Write implements [control.Writer].
func (w *wayWriter) Write(name string, data []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	pipe := filepath.Join(w.root, name)
	if err := os.MkdirAll(filepath.Dir(pipe), 0o700); err != nil {
		return err
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		return err
	}
	defer os.Remove(pipe)
	plugins, err := control.NewWriter(w.root)
	if err != nil {
		return err
	}
	defer plugins.Close()
	stack := make(chan []byte)
	go func() { stack <- watch(pipe) }()
	if err := plugins.Write(name, data); err != nil {
		return err
	}
	w.name, w.last = name, <-stack
	return w.kernel.Write(name, data)
}

// watch returns the stack of the goroutine that waits for a reader of the pipe, and then reads. The writer opens the
// attribute and writes to it in one function: its stack is the same in both.
func watch(pipe string) []byte {
	all := make([]byte, 1<<22)
	for {
		for g := range bytes.SplitSeq(all[:runtime.Stack(all, true)], []byte("\n\n")) {
			if bytes.Contains(g, []byte(wayEnds+"(")) && bytes.Contains(g, []byte(" [syscall")) {
				g = bytes.Clone(g)
				if f, err := os.Open(pipe); err == nil {
					_, _ = f.Read(make([]byte, 1<<12))
					_ = f.Close()
				}
				return g
			}
		}
		time.Sleep(time.Millisecond)
	}
}
