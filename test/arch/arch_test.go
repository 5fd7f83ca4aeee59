// Package arch holds the tests that keep the import graph in shape. The graph
// is also the privilege graph: what a binary can't import it can't do.
//
// The tests parse the tree instead of running "go list": go test tracks the
// files that a test opens, so a cached "ok" never hides a new import.
package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/kata-vfio/kata-vfio/"

// layers returns every package below pkg/, innermost first. A package imports
// only packages of earlier layers.
func layers() [][]string {
	return [][]string{
		{ // words, and values of one source
			"cli/command/commandtest", "cli/output", "pci", "plugin/metrics/metricstest", "program",
			"sysfs/kernelargs",
		},
		{ // values, documents, and what is wrong
			"device", "fabric", "rule", "sanitize", "sysfs",
		},
		{ // what users write; judgments; the edges of the kernel
			"api/v1alpha1", "audit/finding", "bootstrap/state", "cli/command", "fabric/fabrictest", "fabric/manager", "isolation", "rule/ruletest",
			"network/vf/link", "sysfs/control", "sysfs/sysfstest", "vfio",
		},
		{ // one source each
			"bootstrap/blueprint", "claim", "inventory", "kube", "ledger", "network/guestnet", "network/vf",
			"nodeconfig", "plugin/serving", "sanitizer",
		},
		{ // the decision
			"kube/kubetest", "network/vf/vftest", "plan",
		},
		{ // what the decision means: to the scheduler, the kernel, the disk
			"bind", "cdi", "journal", "network/podnet", "publish",
		},
		{ // a node's facts, a cluster, one step of a claim
			"audit/archive", "cluster", "facts", "ledger/writer", "plugin/podres", "prepare/effects",
		},
		{ // the order of steps; fleets
			"audit/fleet", "bootstrap/containers", "controller/stage", "controller/twin", "facts/runtimes", "lint", "prepare",
		},
		{ // functions outside a claim; what runtimes are set up to do
			"audit/check", "audit/cluster", "bootstrap/host", "controller", "maintain", "plugin/nri",
		},
		{ // the parts of a node joined; bootstrap
			"bootstrap", "node", "plugin/metrics",
		},
		{ // the kubelet's calls; what an audit shows
			"audit", "bootstrap/writer", "plugin/dra",
		},
		{ // entry points
			"audit/candidatetest", "audit/report", "plugin",
		},
	}
}

// pure returns the packages that decide. They must not reach the node, the
// network or a clock.
func pure() []string {
	return []string{
		"pci", "rule", "device", "api/v1alpha1", "isolation", "nodeconfig", "claim", "publish", "plan", "audit/finding", "audit/check",
		"sysfs/kernelargs", "cluster", "controller/twin", "controller/stage", "bootstrap/state", "bootstrap/containers", "bootstrap/blueprint", "bootstrap/host",
		"sanitize", "lint", "fabric",
	}
}

func impure() []string {
	return []string{"os", "os/exec", "net", "net/http", "syscall", "time", "golang.org/x/sys/unix", "log/slog"}
}

// harmless maps a package to imports of which it uses only what decides: dates of waivers, the time of a record, and the
// form of a file's owner.
func harmless() map[string][]string {
	return map[string][]string{"audit/finding": {"time"}, "bootstrap/state": {"time", "syscall"}}
}

// forbidden maps a command to packages that its binary must not contain.
func forbidden() map[string][]string {
	return map[string][]string{
		"cmd/kata-vfio-audit":      {"pkg/sanitizer", "pkg/bind", "pkg/prepare", "pkg/prepare/effects", "pkg/maintain", "pkg/bootstrap/writer", "pkg/ledger/writer", "pkg/sysfs/control", "pkg/sysfs/sysfstest", "pkg/plugin", "pkg/plugin/dra", "pkg/plugin/metrics", "pkg/plugin/serving", "pkg/network/vf", "pkg/network/podnet"},
		"cmd/kata-vfio-bootstrap":  {"pkg/sanitizer", "pkg/bind", "pkg/prepare", "pkg/prepare/effects", "pkg/maintain", "pkg/plugin", "pkg/plugin/dra", "pkg/plugin/metrics", "pkg/plugin/serving", "pkg/network/vf", "pkg/network/podnet", "pkg/audit", "pkg/sysfs/sysfstest"},
		"cmd/kata-vfio-guestnet":   {"pkg/sanitizer", "pkg/bind", "pkg/prepare", "pkg/prepare/effects", "pkg/maintain", "pkg/sysfs/control", "pkg/plugin", "pkg/plugin/dra", "pkg/plugin/metrics", "pkg/plugin/serving", "pkg/network/vf", "pkg/network/podnet", "pkg/publish"},
		"cmd/kata-vfio-sanitize":   {"pkg/bind", "pkg/prepare", "pkg/prepare/effects", "pkg/maintain", "pkg/inventory", "pkg/journal", "pkg/ledger", "pkg/node", "pkg/sysfs/sysfstest", "pkg/vfio", "pkg/plugin", "pkg/plugin/dra", "pkg/plugin/metrics", "pkg/plugin/serving", "pkg/network/vf", "pkg/network/podnet", "pkg/network/guestnet", "pkg/publish"},
		"cmd/kata-vfio-controller": {"pkg/sanitizer", "pkg/bind", "pkg/prepare", "pkg/prepare/effects", "pkg/maintain", "pkg/node", "pkg/journal", "pkg/inventory", "pkg/bootstrap/writer", "pkg/ledger/writer", "pkg/sysfs/control", "pkg/sysfs/sysfstest", "pkg/plugin", "pkg/plugin/dra", "pkg/plugin/metrics", "pkg/network/vf", "pkg/network/podnet", "pkg/audit"},
		"cmd/kubectl-kata_vfio":    {"pkg/sanitizer", "pkg/bind", "pkg/prepare", "pkg/prepare/effects", "pkg/maintain", "pkg/bootstrap/writer", "pkg/ledger/writer", "pkg/sysfs/control", "pkg/sysfs/sysfstest", "pkg/plugin", "pkg/plugin/dra", "pkg/plugin/metrics", "pkg/plugin/serving", "pkg/network/vf", "pkg/network/podnet"},
		"cmd/kata-vfio-plugin":     {"pkg/sanitizer", "pkg/sysfs/sysfstest", "pkg/network/vf/vftest", "pkg/plugin/metrics/metricstest", "pkg/audit"},
	}
}

// writers are the packages that may import sysfs/control.
func writers() []string {
	return []string{"pkg/bind", "pkg/sysfs/sysfstest", "pkg/node", "pkg/bootstrap/writer", "pkg/sanitizer"}
}

// core are the packages that a claim passes through, and what they import.
func core() []string {
	return []string{
		"pci", "device", "fabric", "rule", "api/v1alpha1", "isolation", "nodeconfig", "claim", "publish", "plan", "sysfs", "sysfs/control", "sysfs/kernelargs", "vfio",
		"inventory", "journal", "cdi", "bind", "ledger", "ledger/writer", "network/vf", "network/vf/link", "network/podnet", "program", "prepare", "prepare/effects", "maintain", "node",
	}
}

// TestCoreKnowsNoAudit refuses a core that imports what shows or checks it.
func TestCoreKnowsNoAudit(t *testing.T) {
	sources := load(t)
	for _, name := range core() {
		for _, imp := range sources["pkg/"+name].imports {
			if strings.HasPrefix(imp, "pkg/audit") || strings.HasPrefix(imp, "pkg/cli") {
				t.Errorf("pkg/%s imports %s; the core imports neither the audit nor the commands' output", name, imp)
			}
		}
	}
}

// TestPackagesStayFew refuses a package that has no reason to be one. Doubles, named ...test, don't count.
func TestPackagesStayFew(t *testing.T) {
	const most, deepest = 61, 12
	var packages int
	for _, layer := range layers() {
		for _, name := range layer {
			if !strings.HasSuffix(name, "test") {
				packages++
			}
		}
	}
	if packages > most || len(layers()) > deepest {
		t.Errorf("got %d packages in %d layers, want at most %d in %d: does a new one belong to the package that uses it?", packages, len(layers()), most, deepest)
	}
}

// A source is one directory of Go code, tests left out.
type source struct {
	imports []string
	doc     bool
}

// load returns the tree's directories of Go code.
func load(t *testing.T) map[string]*source {
	t.Helper()
	sources, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return sources
}

// parsed parses the tree once for all tests, which only read it.
//

var parsed = sync.OnceValues(func() (map[string]*source, error) {
	sources := map[string]*source{}
	root := os.DirFS("../..")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
			return err
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		s := sources[path.Dir(name)]
		if s == nil {
			s = &source{}
			sources[path.Dir(name)] = s
		}
		s.add(f)
		return nil
	})
	return sources, err
})

func (s *source) add(f *ast.File) {
	s.doc = s.doc || f.Doc != nil
	for _, spec := range f.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			s.imports = append(s.imports, strings.TrimPrefix(imp, module))
		}
	}
}

func layer(name string) int {
	return slices.IndexFunc(layers(), func(l []string) bool { return slices.Contains(l, name) })
}

// TestImportsPointInward refuses an import of the own or an outer layer, a
// package without a layer or a comment, and an impure decision.
func TestImportsPointInward(t *testing.T) {
	for dir, s := range load(t) {
		name, ok := strings.CutPrefix(dir, "pkg/")
		if !ok {
			continue
		}
		from := layer(name)
		if from < 0 {
			t.Errorf("%s has no layer; place it in layers", dir)
		}
		if !s.doc {
			t.Errorf("%s has no package comment", dir)
		}
		for _, imp := range s.imports {
			if dep, ok := strings.CutPrefix(imp, "pkg/"); ok && layer(dep) >= from {
				t.Errorf("%s (layer %d) imports %s (layer %d)", dir, from, imp, layer(dep))
			}
			if slices.Contains(pure(), name) && slices.Contains(impure(), imp) && !slices.Contains(harmless()[name], imp) {
				t.Errorf("%s decides; it must not import %s", dir, imp)
			}
		}
	}
}

// TestBinariesContainNoMoreThanTheyNeed follows what each command links.
func TestBinariesContainNoMoreThanTheyNeed(t *testing.T) {
	sources := load(t)
	for cmd, bad := range forbidden() {
		if sources[cmd] == nil {
			t.Errorf("%s does not exist; drop it from forbidden", cmd)
			continue
		}
		for dep := range reach(sources, cmd) {
			if slices.Contains(bad, dep) {
				t.Errorf("%s links %s", cmd, dep)
			}
		}
	}
}

// TestSmallBinariesKnowNoCluster keeps the Kubernetes client, tens of megabytes,
// out of what has nothing to ask an API server.
func TestSmallBinariesKnowNoCluster(t *testing.T) {
	sources := load(t)
	for _, cmd := range []string{"cmd/kata-vfio-guestnet", "cmd/kata-vfio-sanitize", "cmd/kata-vfio-bootstrap"} {
		for dep := range reach(sources, cmd) {
			for _, imp := range sources[dep].imports {
				if strings.HasPrefix(imp, "k8s.io/client-go/") {
					t.Errorf("%s links %s, which imports %s", cmd, dep, imp)
				}
			}
		}
	}
}

// TestOneProgramLoadsALibrary keeps cgo, and with it a vendor's library, out of everything but the helper that asks Fabric Manager, and
// everything else out of the helper.
func TestOneProgramLoadsALibrary(t *testing.T) {
	const helper = "cmd/kata-vfio-fabric"
	sources := load(t)
	for dir, s := range sources {
		if slices.Contains(s.imports, "C") != (dir == helper) {
			t.Errorf("%s imports C: %t; want it of %s alone", dir, dir != helper, helper)
		}
	}
	for dep := range reach(sources, helper) {
		if !slices.Contains([]string{helper, "pkg/fabric", "pkg/fabric/manager", "pkg/pci", "pkg/program"}, dep) {
			t.Errorf("%s links %s", helper, dep)
		}
	}
}

// TestKubectlPluginBuildsForEverySystem keeps packages of Linux alone, and of POSIX, out of the program that runs where kubectl does.
func TestKubectlPluginBuildsForEverySystem(t *testing.T) {
	sources := load(t)
	for dep := range reach(sources, "cmd/kubectl-kata_vfio") {
		for _, imp := range sources[dep].imports {
			if imp == "golang.org/x/sys/unix" || strings.HasPrefix(imp, "github.com/vishvananda/") || strings.HasPrefix(imp, "github.com/google/renameio/") {
				t.Errorf("kubectl-kata_vfio links %s, which imports %s: macOS or Windows does not have it", dep, imp)
			}
		}
	}
}

// TestOneWriterOfSysfs keeps sysfs/control behind the packages that verify
// what they write.
func TestOneWriterOfSysfs(t *testing.T) {
	for dir, s := range load(t) {
		if strings.HasPrefix(dir, "pkg/") && slices.Contains(s.imports, "pkg/sysfs/control") && !slices.Contains(writers(), dir) {
			t.Errorf("%s imports sysfs/control; only %v may", dir, writers())
		}
	}
}

// TestProductImportsNoKubernetesTree keeps k8s.io/kubernetes out: it is not a library. The
// module that builds the real components for the tests is all of its users.
func TestProductImportsNoKubernetesTree(t *testing.T) {
	for dir, s := range load(t) {
		if dir == "test/e2e/kube" {
			continue
		}
		for _, imp := range s.imports {
			if imp == "k8s.io/kubernetes" || strings.HasPrefix(imp, "k8s.io/kubernetes/") {
				t.Errorf("%s imports %s", dir, imp)
			}
		}
	}
}

// reach returns the module's packages that from links, directly or not.
func reach(sources map[string]*source, from string) map[string]bool {
	seen := map[string]bool{}
	var visit func(string)
	visit = func(dir string) {
		if sources[dir] == nil || seen[dir] {
			return
		}
		seen[dir] = true
		for _, imp := range sources[dir].imports {
			visit(imp)
		}
	}
	visit(from)
	return seen
}
