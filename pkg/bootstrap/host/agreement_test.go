package host_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
	nodetree "github.com/kata-vfio/kata-vfio/test/tree"
)

// trees is how many nodes are generated.
const trees = 10_000

// TestBootstrapAndAuditAgree generates nodes with files of boot loaders, and asks both what weakens isolation: bootstrap's
// conflicts and the audit's checks of [kernelargs.Weakenings] name the same files, lines and values, and agree on whether
// the running kernel has such an argument. Of a module's parameter the audit judges the last value, and bootstrap each: a
// check that fails has a conflict.
func TestBootstrapAndAuditAgree(t *testing.T) {
	root := nodetree.Open(t, nil)
	random := rand.New(rand.NewPCG(1, 2026))
	bad, good, fails, now := map[host.LoaderKind]int{}, map[host.LoaderKind]int{}, map[string]int{}, 0
	for i := range trees {
		of := generate(random)
		overlay := sysfs.NewOverlay()
		for name, text := range of {
			overlay.Put(name, []byte(text), 0o644, 0, 0)
		}
		node := root.WithOverlay(overlay)
		p := host.Detect(node, true)
		byBootstrap, byAudit := bootstrapSays(node, p), auditSays(t, node)
		if diff := cmp.Diff(byBootstrap, byAudit); diff != "" {
			t.Fatalf("node %d, started by %s (-bootstrap +audit):\n%s\n%s", i, p.Loader.Kind, diff, shown(of))
		}
		for _, id := range byAudit.parameters {
			fails[id]++
			if !slices.Contains(byBootstrap.parameters, id) {
				t.Fatalf("node %d, started by %s: %s fails, and bootstrap has conflicts with %v only\n%s", i, p.Loader.Kind, id, byBootstrap.parameters, shown(of))
			}
		}
		if byBootstrap.running {
			now++
		}
		if len(byBootstrap.files) > 0 {
			bad[p.Loader.Kind]++
		} else {
			good[p.Loader.Kind]++
		}
	}
	for _, kind := range kinds() {
		if bad[kind] < 50 || good[kind] < 50 {
			t.Errorf("%s: %d nodes have such an argument in a file and %d have none: want 50 of each for the test to mean something", kind, bad[kind], good[kind])
		}
	}
	if now < 50 {
		t.Errorf("%d running kernels have such an argument: want 50", now)
	}
	for _, w := range kernelargs.WeakeningParameters() {
		if fails[w.Rule] < 20 {
			t.Errorf("%s fails on %d nodes: want 20 for the test to mean something", w.Rule, fails[w.Rule])
		}
	}
	t.Logf("with such an argument: %v; without: %v; running: %d", bad, good, now)
}

// kinds are the loaders of which nodes are generated.
func kinds() []host.LoaderKind {
	return []host.LoaderKind{
		host.GRUB, host.GRUBEntries, host.Entries, host.UBootMenu, host.Extlinux, host.UpdateExtlinux,
		host.Flatcar, host.Armbian, host.Proxmox, host.REFInd, host.Limine, host.KernelOptions,
	}
}

// said is a program's output about a node.
type said struct {
	// files are the places for later boots: "/etc/default/grub line 3: intremap=off".
	files []string
	// running: the running kernel was started with such an argument.
	running bool
	// parameters are the rules of module parameters that fail.
	parameters []string
}

func (s said) Equal(other said) bool {
	return s.running == other.running && slices.Equal(s.files, other.files)
}

func (s said) String() string { return fmt.Sprintf("running %t, files %q", s.running, s.files) }

// weakenings matches "intremap=off", and the reasons of such arguments.
func weakenings() (words, reasons string) {
	var names, why []string
	for _, w := range kernelargs.Weakenings() {
		names, why = append(names, w.Name), append(why, regexp.QuoteMeta(w.Why))
	}
	return `((?:` + strings.Join(names, "|") + `)=\S+)`, `(?:` + strings.Join(why, "|") + `)`
}

var (
	words, reasons = weakenings()
	conflict       = regexp.MustCompile(`^(/\S+ line \d+): ` + words + ` ` + reasons + `$`)
	running        = regexp.MustCompile(`^the running kernel was started with ` + words + `, which ` + reasons + `;`)
	weakens        = regexp.MustCompile(`(/\S+?)( line \d+)? sets ` + words + `, which `)
)

func bootstrapSays(node *sysfs.FS, p *host.Platform) said {
	var s said
	for _, problem := range host.LoaderWanted(node, blueprint.Default(), p).Problems {
		if found := conflict.FindStringSubmatch(problem.Text); found != nil {
			s.files = append(s.files, found[1]+": "+found[2])
		}
		s.running = s.running || running.MatchString(problem.Text)
		for _, w := range kernelargs.WeakeningParameters() {
			if strings.Contains(problem.Text, w.Name+"=") {
				s.parameters = append(s.parameters, w.Rule)
			}
		}
	}
	return s.sorted()
}

func (s said) sorted() said {
	slices.Sort(s.files)
	s.files = slices.Compact(s.files)
	return s
}

func auditSays(t *testing.T, node *sysfs.FS) said {
	t.Helper()
	report := check.Run(facts.New(node, &device.Snapshot{}), shared(t), check.Options{Profile: finding.Profile{}})
	var s said
	for _, f := range report.Findings {
		if f.State != finding.Fail {
			continue
		}
		if slices.ContainsFunc(kernelargs.WeakeningParameters(), func(w kernelargs.Weakening) bool { return w.Rule == f.ID }) {
			s.parameters = append(s.parameters, f.ID)
		}
		for _, found := range weakens.FindAllStringSubmatch(f.Text, -1) {
			if found[2] == "" { // the running kernel's command line is one line
				s.running = true
				continue
			}
			s.files = append(s.files, found[1]+found[2]+": "+found[3])
		}
	}
	return s.sorted()
}

// shared returns the checks of the arguments and parameters that bootstrap refuses.
func shared(t *testing.T) []check.Check {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(checks(t)), func(c check.Check) bool {
		return !slices.ContainsFunc(slices.Concat(kernelargs.Weakenings(), kernelargs.WeakeningParameters()), func(w kernelargs.Weakening) bool { return w.Rule == c.ID })
	})
}

func shown(of map[string]string) string {
	var all strings.Builder
	for name, text := range of {
		fmt.Fprintf(&all, "--- %s\n%s", name, text)
	}
	return all.String()
}

// catalogue is parsed once for thousands of nodes.
var catalogue = sync.OnceValues(check.Catalogue)

// checks returns all checks of a node.
func checks(tb testing.TB) []check.Check {
	tb.Helper()
	all, err := catalogue()
	if err != nil {
		tb.Fatal(err)
	}
	return all
}
