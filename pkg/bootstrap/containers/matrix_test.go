package containers_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/test/golden"
)

// A shape is a way in which a configuration has its imports.
type shape struct {
	name, text string
	// edits says that the main file has to be edited.
	edits bool
}

func shapes() []shape {
	return []shape{
		{"none", "VERSION\n# a site's\n[grpc]\n  address = '/run/x.sock' # keep\n\nSECTION", true},
		{"none, CRLF", "# c\r\nVERSION\r\n\r\n[grpc]\r\n  address = '/run/x.sock'\r\nSECTION", true},
		{"none, no newline", "VERSION\nSECTION", true},
		{"empty", "VERSION\nimports = []\nSECTION", true},
		{"one line", "VERSION\nimports = ['/etc/containerd/site.toml'] # ours ]\nSECTION", true},
		{"lines", "imports = [\n  \"site.toml\", # one\n  # \"/etc/containerd/conf.d/*.toml\",\n]\nVERSION\nSECTION", true},
		{"covered", "VERSION\nimports = [\"/etc/containerd/conf.d/*.toml\"]\nSECTION", false},
		{"covered, relative", "VERSION\nimports = [\n  'site.toml',\n  'conf.d/k*.toml' ]\nSECTION", false},
		{"covered by another", "VERSION\nimports = ['/etc/containerd/all.toml']\nSECTION", false},
	}
}

// section is what a site has below, by the version of the configuration: another
// handler of Kata's, the opposite of what we need, and lists.
func section(version int) string {
	cri := "io.containerd.cri.v1.runtime"
	if version == 2 {
		cri = "io.containerd.grpc.v1.cri"
	}
	return strings.ReplaceAll(`[plugins]
  [plugins."CRI"]
    enable_cdi = false
    cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi", "/opt/cdi"]
    max_container_log_line_size = 7
    [plugins."CRI".containerd]
      default_runtime_name = "runc"
      [plugins."CRI".containerd.runtimes.runc]
        runtime_type = "io.containerd.runc.v2"
        [plugins."CRI".containerd.runtimes.runc.options]
          SystemdCgroup = true
      [plugins."CRI".containerd.runtimes.kata]
        runtime_type = "io.containerd.kata.v2"
        privileged_without_host_devices = true
        pod_annotations = ["io.katacontainers.*"]
  [plugins."io.containerd.nri.v1.nri"]
    disable = true
    plugin_registration_timeout = "7s"`, "CRI", cri)
}

func TestMatrix(t *testing.T) {
	table := tabwriter.NewWriter(t.Output(), 0, 0, 2, ' ', 0)
	defer table.Flush()
	fmt.Fprintln(table, "version\tcontainerd\timports\tKata\tfiles\tedit of config.toml\tagain\thandlers")
	for _, kind := range []struct {
		version    int
		containerd string
	}{{2, "2.0.0-1"}, {2, "2.1.4-1"}, {3, "2.1.4-1"}, {3, ""}, {4, "2.4.2-1"}} {
		for _, shape := range shapes() {
			for _, o := range flavours() {
				name := fmt.Sprintf("%d/%s/%s/%s", kind.version, kind.containerd, shape.name, flavourName(o))
				t.Run(name, func(t *testing.T) {
					row := tryShape(t, kind.version, kind.containerd, shape, o)
					fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\n", kind.version, kind.containerd, shape.name, flavourName(o), row)
				})
			}
		}
	}
}

func flavours() []blueprint.Containers {
	return []blueprint.Containers{
		{Kata: blueprint.FlavorGo}, {Kata: blueprint.FlavorGo, NICHandler: true}, {Kata: blueprint.FlavorRust, Base: blueprint.BaseNIC, NICHandler: true}, {Kata: blueprint.FlavorGo, Base: blueprint.BaseNIC, HotPlug: true}, {Kata: blueprint.FlavorRust, Base: blueprint.BaseNIC},
	}
}

func flavourName(o blueprint.Containers) string {
	if o.HotPlug {
		return string(o.Kata) + " hot"
	}
	if o.NICHandler {
		return string(o.Kata) + " and kata-vfio"
	}
	return string(o.Kata)
}

// handlersOf are the handlers that the options install.
func handlersOf(o blueprint.Containers) []string {
	if o.NICHandler {
		return []string{"kata-gpu", "kata-vfio"}
	}
	return []string{"kata-gpu"}
}

// tryShape has a node made fit, and looks at it with the audit's eyes.
func tryShape(t *testing.T, version int, containerd string, s shape, o blueprint.Containers) string {
	t.Helper()
	head := fmt.Sprintf("version = %d", version)
	text := strings.NewReplacer("VERSION", head, "SECTION", section(version)).Replace(s.text)
	of := kata().and(containerdPackage(containerd)).and(files{
		main:                          text,
		"etc/containerd/site.toml":    head + "\n[debug]\n  level = 'warn'\n",
		"etc/containerd/all.toml":     head + "\nimports = ['conf.d/*.toml']\n",
		"var/lib/kubelet/config.yaml": "cgroupDriver: systemd\n",
	})
	fsys, w := open(t, of, o)
	if problems := fatal(w); len(problems) > 0 {
		t.Fatalf("it has the problems %+v", problems)
	}
	handlersBefore := len(seen(fsys).Handlers)
	todo := changes(t, fsys, w)
	checkModes(t, w)
	if slices.Contains(todo, main) != s.edits {
		t.Errorf("to change are %v; want config.toml among them: %t", todo, s.edits)
	}
	apply(t, fsys, w)
	again := wanted(t, fsys, o)
	if left := changes(t, fsys, again); len(left) > 0 || len(again.Files) != len(w.Files) {
		t.Errorf("applied, it wants %v again", left)
	}
	edited, err := fsys.ReadFile(main)
	if err != nil {
		t.Fatal(err)
	}
	checkOnlyImportsDiffer(t, text, string(edited))
	r := seen(fsys)
	if len(r.Damaged) > 0 || len(r.Handlers) != handlersBefore+len(handlersOf(o)) {
		t.Errorf("the audit sees the handlers %+v, damaged %+v", r.Handlers, r.Damaged)
	}
	for _, name := range handlersOf(o) {
		checkHandler(t, r.Handlers[slices.IndexFunc(r.Handlers, func(h runtimes.Handler) bool { return h.Name == name })], o)
	}
	if diff := cmp.Diff([]string{"/etc/cdi", "/var/run/cdi", "/opt/cdi"}, r.CDIDirs); diff != "" {
		t.Errorf("the CDI directories differ (-want +got):\n%s", diff)
	}
	if !r.NRI.Enabled || !r.NRI.Validator.On() {
		t.Errorf("NRI is %+v", r.NRI)
	}
	return fmt.Sprintf("%d\t%+d bytes\t%d\t%d", len(todo), len(edited)-len(text), len(changes(t, fsys, again)), len(r.Handlers))
}

// checkHandler wants a handler of Kata's that keeps a pod's annotations and the node's devices out.
func checkHandler(t *testing.T, h runtimes.Handler, o blueprint.Containers) {
	t.Helper()
	if !h.IsKata() || h.IsRust() != (o.Kata == blueprint.FlavorRust) || !h.PrivilegedWithoutHostDevices.On() || h.Sandboxer.Text() != "podsandbox" {
		t.Errorf("the handler is %+v", h)
	}
	if !strings.HasSuffix(h.Config.Text(), "/"+h.Name+"/configuration.toml") {
		t.Errorf("the handler %s has the configuration %s", h.Name, h.Config.Text())
	}
	for _, prefix := range []string{"cdi.k8s.io/", "io.katacontainers."} {
		if by, passes := h.Passes(prefix); passes || !h.PodAnnotations.IsSet() {
			t.Errorf("%s* passes by %+v", prefix, by)
		}
	}
}

// checkModes wants files that everybody can read.
func checkModes(t *testing.T, w state.Wanted) {
	t.Helper()
	for _, f := range w.Files {
		if f.Target == "" && f.Mode != 0o644 {
			t.Errorf("%s has the mode %o, want 644", f.Path, f.Mode)
		}
	}
}

func checkOnlyImportsDiffer(t *testing.T, before, after string) {
	t.Helper()
	was, is := map[string]any{}, map[string]any{}
	if err := toml.Unmarshal([]byte(before), &was); err != nil {
		t.Fatal(err)
	}
	if err := toml.Unmarshal([]byte(after), &is); err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(was, func(key string, _ any) bool { return key == "imports" })
	maps.DeleteFunc(is, func(key string, _ any) bool { return key == "imports" })
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("the main file says something else (-before +after):\n%s", diff)
	}
	// What is gone if the insertion is taken out is nothing.
	head := 0
	for head < len(before) && before[head] == after[head] {
		head++
	}
	if !strings.HasSuffix(after, before[head:]) {
		t.Errorf("bytes of the main file are lost:\n%s", after)
	}
}

// What is wanted of some nodes, as files of testdata: test/e2e/containerd/dropins has
// containerd's own loader read them.
func TestContainerdsFilesAreTheGoldenOnes(t *testing.T) {
	for name, c := range map[string]struct {
		containerd, text string
		o                blueprint.Containers
	}{
		"version-2":        {"2.0.0-1", "version = 2\n" + section(2) + "\n", blueprint.Containers{}},
		"version-2-as-new": {"2.4.2-1", "version = 2\n" + section(2) + "\n", blueprint.Containers{}},
		"version-3":        {"2.1.4-1", "# a site's\nversion = 3\nimports = [] # none\n" + section(3) + "\n", blueprint.Containers{}},
		"version-4":        {"2.4.2-1", "version = 4\r\nimports = [\r\n  'site.toml', # one\r\n]\r\n" + section(4), blueprint.Containers{Kata: blueprint.FlavorRust, Base: blueprint.BaseNIC}},
		"version-2-nic":    {"2.0.0-1", "version = 2\n" + section(2) + "\n", blueprint.Containers{NICHandler: true}},
		"version-3-nic":    {"2.1.4-1", "version = 3\n" + section(3) + "\n", blueprint.Containers{Kata: blueprint.FlavorRust, NICHandler: true}},
		"no-file":          {"2.4.2-1", "", blueprint.Containers{}},
		"no-file-unknown":  {"", "", blueprint.Containers{}},
	} {
		_, w := open(t, kata().and(containerdPackage(c.containerd)).and(files{main: c.text, "etc/containerd/site.toml": "version = 3\n"}), c.o)
		golden.Compare(t, "containerd/"+name+".toml", content(w, main))
		golden.Compare(t, "containerd/"+name+".drop-in.toml", content(w, dropIn))
	}
}
