package containers_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// content returns the required content of a file; empty if there is none.
func content(w state.Wanted, path string) string {
	for _, f := range w.Files {
		if f.Path == path {
			return string(f.Content)
		}
	}
	return ""
}

func TestNewConfigurationHasTwoLines(t *testing.T) {
	for _, version := range []string{"", "2.2.0-1", "2:2.2.0~rc1"} {
		fsys, w := open(t, kata().and(containerdPackage(version)), blueprint.Containers{})
		if diff := cmp.Diff("version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n", content(w, main)); diff != "" {
			t.Errorf("for containerd %q it differs (-want +got):\n%s", version, diff)
		}
		apply(t, fsys, w)
		if left := changes(t, fsys, wanted(t, fsys, blueprint.Containers{})); len(left) > 0 {
			t.Errorf("for containerd %q it wants %v again", version, left)
		}
		names := []string{}
		for _, h := range seen(fsys).Handlers {
			names = append(names, h.Name)
		}
		if diff := cmp.Diff([]string{"kata-gpu"}, names); diff != "" {
			t.Errorf("for containerd %q the handlers differ (-want +got):\n%s", version, diff)
		}
	}
}

// TestContainerd1IsRefused: with any configuration, no file of containerd's is required.
func TestContainerd1IsRefused(t *testing.T) {
	for name, of := range map[string]files{
		"no configuration": {},
		"version 2":        {main: "version = 2\nimports = ['/etc/containerd/conf.d/*.toml']\n", "etc/containerd/conf.d/z.toml": "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\nenable_selinux = true\n"},
		"version 3":        {main: "version = 3\n"},
		"an import of version 3": {
			main: "version = 2\nimports = ['conf.d/*.toml']\n", "etc/containerd/conf.d/a.toml": "version = 3\n",
		},
		"a broken one": {main: "version = 2\n[plugins\n"},
	} {
		for _, version := range []string{"1.7.28-1", "1.6.20~ds1-1+b1"} {
			t.Run(name+"/"+version, func(t *testing.T) {
				_, w := open(t, kata().and(containerdPackage(version)).and(of), blueprint.Containers{})
				checkRefused(t, w, "containerd", "var/lib/dpkg/status", "containerd is version "+version, "Install containerd 2.2 or newer")
				checkCode(t, w, rule.VersionTooOld)
			})
		}
	}
}

// TestUnknownContainerdIsJudgedByTheFilesVersion: a file of version 2 may be containerd 1's.
func TestUnknownContainerdIsJudgedByTheFilesVersion(t *testing.T) {
	for name, of := range map[string]files{
		"version 2":             {main: "version = 2\n"},
		"version 2 with import": {main: "version = 2\nimports = ['conf.d/*.toml']\n", "etc/containerd/conf.d/a.toml": "version = 2\n"},
		"passwords": {
			main: "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.registry.configs.x.auth]\npassword = 'p'\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, w := open(t, kata().and(of), blueprint.Containers{})
			checkRefused(t, w, "containerd", main, "has version 2", "no file shows the version of containerd", "containerd config migrate")
			checkCode(t, w, rule.VersionUnknown)
			_, w = open(t, kata().and(containerdPackage("2.2.0-1")).and(of), blueprint.Containers{})
			if text := content(w, dropIn); len(fatal(w)) > 0 || !strings.Contains(text, "version = 3") || strings.Contains(text, "password") {
				t.Errorf("with containerd 2 the problems are %+v, the drop-in\n%s", w.Problems, text)
			}
		})
	}
	_, w := open(t, kata(), blueprint.Containers{})
	checkCode(t, w, rule.VersionUnknown)
	if len(fatal(w)) > 0 || content(w, dropIn) == "" {
		t.Errorf("without a configuration, the problems are %+v, wanted %v", w.Problems, paths(w))
	}
}

// checkCode wants one problem with containerd, which has the code.
func checkCode(t *testing.T, w state.Wanted, want rule.Code) {
	t.Helper()
	var codes []rule.Code
	for _, p := range w.Problems {
		if p.Part == "containerd" {
			codes = append(codes, p.Code)
		}
	}
	if diff := cmp.Diff([]rule.Code{want}, codes); diff != "" {
		t.Errorf("the codes differ (-want +got):\n%s", diff)
	}
}

func TestFilesThatNobodyAskedForStayUnread(t *testing.T) {
	fsys, w := open(t, kata().and(files{
		main:                             "version = 3\n",
		"etc/containerd/conf.d/old.toml": "version = 3\n[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n",
	}), blueprint.Containers{})
	apply(t, fsys, w)
	if got := content(w, main); !strings.Contains(got, `imports = ["/etc/containerd/conf.d/kata-gpu*.toml"]`) {
		t.Errorf("it wants %q", got)
	}
	if r := seen(fsys); !r.NRI.Enabled || len(r.Files) != 2 {
		t.Errorf("read are %+v", r.Files)
	}
}

func TestConfigurationThatIsNotFitIsRefusedWithItsPath(t *testing.T) {
	const handler = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata-gpu]\n"
	const confD = "etc/containerd/conf.d/"
	const imports = "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n"
	for name, c := range map[string]struct {
		files
		path, word string
	}{
		"broken":                 {files{main: "version = 3\n[plugins\n"}, main, "/etc/containerd/config.toml:2"},
		"a duplicated key":       {files{main: "version = 3\nimports = []\nimports = []\n"}, main, "imports"},
		"a version of tomorrow":  {files{main: "version = 5\n"}, main, "version 5"},
		"a version that is text": {files{main: "version = '3'\n"}, main, "migrate"},
		"version 1":              {files{main: "version = 1\n[plugins.cri]\n"}, main, "containerd config migrate"},
		"no version":             {files{main: "disabled_plugins = ['cri']\n"}, main, "containerd config migrate"},
		"CRI off":                {files{main: "version = 2\ndisabled_plugins = ['io.containerd.grpc.v1.cri']\n"}, main, "disabled_plugins"},
		"NRI off in an import": {files{
			main: imports + "disabled_plugins = ['x.y']\n", confD + "a.toml": "version = 3\ndisabled_plugins = ['io.containerd.nri.v1.nri']\n", confD + "b.toml": "version = 3\ndisabled_plugins = ['z.z']\n",
		}, confD + "b.toml", "io.containerd.nri.v1.nri"},
		"a link":                {files{main: "-> /usr/share/x.toml", "usr/share/x.toml": "version = 3\n"}, main, "/usr/share/x.toml"},
		"a dangling link":       {files{main: "-> x.toml"}, main, "is a link to x.toml"},
		"a directory":           {files{main + "/x": ""}.and(files{main + "/x": "y"}), main, "can't be read"},
		"an import that is not": {files{main: "version = 3\nimports = ['gone.toml']\n"}, "etc/containerd/gone.toml", "does not exist"},
		"a broken import":       {files{main: imports, confD + "x.toml": "=\n"}, confD + "x.toml", "would not start"},
		"imports of no list":    {files{main: "version = 3\nimports = 'x'\n"}, main, "not a list"},
		"another's handler":     {files{main: "version = 3\n" + handler + "runtime_type = 'io.containerd.kata.v2'\n"}, main, "runtime_type"},
		"another's in version 2": {containerdPackage("2.2.0").and(files{
			main: "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.kata-gpu]\npod_annotations = ['cdi.k8s.io/*']\n",
		}), main, "pod_annotations"},
		"another's in a drop-in": {files{main: imports, confD + "kata-deploy.toml": "version = 3\n" + handler + "sandboxer = 'shim'\n"}, confD + "kata-deploy.toml", "sandboxer"},
		"one setting more":       {files{main: imports, confD + "a.toml": "version = 3\n" + handler + "privileged_without_host_devices_all_devices_allowed = true\n"}, confD + "a.toml", "all_devices"},
		"NRI off after ours":     {files{main: imports, confD + "z.toml": "version = 3\n[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n"}, confD + "z.toml", "disable = true"},
		"a shorter clean-up after ours": {files{
			main: imports, confD + "z.toml": "version = 3\n[timeouts]\n'io.containerd.timeout.shim.cleanup' = '10s'\n",
		}, confD + "z.toml", `io.containerd.timeout.shim.cleanup = "60s" is required`},
		"a CDI directory after ours": {containerdPackage("2.2.0").and(files{
			main: strings.Replace(imports, "3", "2", 1), confD + "z.toml": "version = 2\n[plugins.'io.containerd.grpc.v1.cri']\ncdi_spec_dirs = ['/x']\n",
		}), confD + "z.toml", "read after bootstrap's file"},
		"too long": {files{main: strings.Repeat("# 345678\n", 1<<17)}, main, "longer than"},
		"deep":     {files{main: "version = 3\na = " + strings.Repeat("[", 1<<18)}, main, "deep"},
	} {
		t.Run(name, func(t *testing.T) {
			_, w := open(t, kata().and(c.files), blueprint.Containers{})
			checkRefused(t, w, "containerd", c.path, c.word)
		})
	}
}

// The limit for the clean-up after a killed shim is raised where it is shorter than ours, and
// a longer one stays, wherever the node says it.
func TestLongerCleanUpLimitOfTheNodeStays(t *testing.T) {
	const imports = "imports = ['/etc/containerd/conf.d/*.toml']\n"
	limit := func(value string) string {
		return "[timeouts]\n'io.containerd.timeout.shim.cleanup' = '" + value + "'\n'io.containerd.timeout.shim.load' = '7s'\n"
	}
	for name, c := range map[string]struct {
		files
		want string
	}{
		"none":                    {files{main: "version = 3\n"}, "60s"},
		"none in version 2":       {containerdPackage("2.2.0").and(files{main: "version = 2\n"}), "60s"},
		"a shorter one":           {files{main: "version = 3\n" + limit("5s")}, "60s"},
		"a longer one":            {files{main: "version = 3\n" + limit("1m20s")}, "1m20s"},
		"a longer one, version 2": {containerdPackage("2.2.0").and(files{main: "version = 2\n" + limit("80s")}), "80s"},
		"a longer one in a later file": {files{
			main: "version = 3\n" + imports, "etc/containerd/conf.d/z.toml": "version = 3\n" + limit("80s"),
		}, "80s"},
	} {
		t.Run(name, func(t *testing.T) {
			fsys, w := open(t, kata().and(c.files), blueprint.Containers{})
			if problems := fatal(w); len(problems) > 0 {
				t.Fatalf("the problems are %+v", problems)
			}
			apply(t, fsys, w)
			if got := seen(fsys).ShimCleanup.Text(); got != c.want {
				t.Errorf("the limit is %q, want %q", got, c.want)
			}
			if text, err := fsys.ReadString(dropIn); err != nil || strings.Contains(text, "shim.load") {
				t.Errorf("the drop-in repeats another timeout (%v):\n%s", err, text)
			}
			if left := changes(t, fsys, wanted(t, fsys, blueprint.Containers{})); len(left) > 0 {
				t.Errorf("it wants %v again", left)
			}
		})
	}
}

func TestContainerdKeepsSiteHandlerSettings(t *testing.T) {
	fsys, w := open(t, kata().and(files{
		main:                              "version = 3\nimports = ['conf.d/*.toml']\n",
		"etc/containerd/conf.d/site.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata-gpu]\nsnapshotter = 'erofs'\nruntime_type = 'io.containerd.kata-gpu.v2'\n",
	}), blueprint.Containers{Kata: blueprint.FlavorRust})
	if len(w.Problems) > 0 {
		t.Errorf("the problems are %+v", w.Problems)
	}
	apply(t, fsys, w)
	if left := changes(t, fsys, wanted(t, fsys, blueprint.Containers{Kata: blueprint.FlavorRust})); len(left) > 0 {
		t.Errorf("it wants %v again", left)
	}
}

func TestFileThatADistributionWritesIsNotEdited(t *testing.T) {
	const k3s = "var/lib/rancher/k3s/agent/etc/containerd/"
	// A left-over of another package does not count.
	of := kata().and(files{k3s + "config.toml": "version = 3\n", main: "disabled_plugins = ['cri']\n"})
	_, w := open(t, of, blueprint.Containers{})
	checkRefused(t, w, "containerd", k3s+"config.toml", "K3s", "config-v3.toml.d", `{{ template "base" . }}`)

	of[k3s+"config.toml"] = "imports = ['/etc/containerd/conf.d/*.toml']\nversion = 3\n"
	fsys, w := open(t, of, blueprint.Containers{})
	if problems := fatal(w); len(problems) > 0 || content(w, k3s+"config.toml") != "" {
		t.Errorf("the problems are %+v; it wants %q", problems, content(w, k3s+"config.toml"))
	}
	apply(t, fsys, w)
	if text, err := fsys.ReadString(dropIn); err != nil || !strings.Contains(text, "kata-gpu") {
		t.Errorf("the drop-in is %q, %v", text, err)
	}
}

func TestConfigurationBelowUsrIsImported(t *testing.T) {
	const vendor = "usr/share/containerd/config.toml"
	const service = "etc/systemd/system/containerd.service.d/50-kata-vfio-config.conf"
	of := kata().and(containerdPackage("2.2.0")).and(files{
		vendor: "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n",
		"usr/lib/systemd/system/containerd.service": "[Service]\nEnvironment=CONTAINERD_CONFIG=/usr/share/containerd/config.toml\n" +
			"ExecStartPre=/bin/true --config /x\nExecStart=/usr/bin/env PATH=${PATH} \"A=b c\" /usr/bin/containerd \\\n  --config ${CONTAINERD_CONFIG} --log-level info\n",
	})
	fsys, w := open(t, of, blueprint.Containers{})
	if problems := fatal(w); len(problems) > 0 {
		t.Fatalf("the problems are %+v", problems)
	}
	want := "version = 2\nimports = [\"/usr/share/containerd/config.toml\", \"/etc/containerd/conf.d/*.toml\"]\n"
	if diff := cmp.Diff(want, content(w, main)); diff != "" {
		t.Errorf("the new configuration differs (-want +got):\n%s", diff)
	}
	start := "ExecStart=\nExecStart=/usr/bin/env PATH=${PATH} \"A=b c\" /usr/bin/containerd --config /etc/containerd/config.toml --log-level info\n"
	if got := content(w, service); !strings.HasSuffix(got, start) {
		t.Errorf("the service's drop-in is %q", got)
	}
	apply(t, fsys, w)
	if left := changes(t, fsys, wanted(t, fsys, blueprint.Containers{})); len(left) > 0 {
		t.Errorf("it wants %v again", left)
	}

	_, w = open(t, of.and(files{main: "version = 2\n"}), blueprint.Containers{})
	checkRefused(t, w, "containerd", main, "/usr/share/containerd/config.toml", "does not import")

	_, w = open(t, of.and(files{vendor: "version = 1\n"}), blueprint.Containers{})
	checkRefused(t, w, "containerd", vendor, "/usr/share/containerd/config.toml has version 1")
}

func TestFileOfANewerVersionTellsThatContainerdIsNotTheOldOne(t *testing.T) {
	_, w := open(t, kata().and(files{
		main: "version = 2\nimports = ['conf.d/*.toml']\n", "etc/containerd/conf.d/a.toml": "version = 3\n",
	}), blueprint.Containers{})
	if got := content(w, dropIn); !strings.Contains(got, "version = 3") {
		t.Errorf("the drop-in is %q, the problems %+v", got, w.Problems)
	}
}

func TestConfigurationIsTheOneOfTheService(t *testing.T) {
	_, w := open(t, kata().and(files{
		main:                  "version = 3\n[broken",
		"opt/containerd.toml": "version = 3\n",
		"etc/systemd/system/containerd.service.d/10-site.conf": "[Service]\nExecStart=\nExecStart=-/usr/local/bin/containerd -c \"/opt/containerd.toml\"\n",
	}), blueprint.Containers{})
	if problems := fatal(w); len(problems) > 0 || content(w, "opt/containerd.toml") == "" || content(w, main) != "" {
		t.Errorf("the problems are %+v, wanted %+v", problems, paths(w))
	}
}

// A package beside the containerd that the service starts says nothing of that.
func TestPackagesVersionCountsForItsOwnProgramAlone(t *testing.T) {
	const unit = "etc/systemd/system/containerd.service"
	for program, packaged := range map[string]bool{"/usr/bin/containerd": true, "/bin/containerd": true, "/usr/local/bin/containerd": false, "/usr/bin/env A=b /usr/local/bin/containerd": false} {
		of := kata().and(files{unit: "[Service]\nExecStart=" + program + "\n", "usr/local/bin/containerd": "ELF", "bin": "-> usr/bin"})
		_, w := open(t, of.and(containerdPackage("1.7.28-1")).and(files{main: "version = 3\n"}), blueprint.Containers{})
		if refused := len(fatal(w)) > 0; refused != packaged {
			t.Errorf("%s beside a package of 1.7: the problems are %+v", program, w.Problems)
		}
		_, w = open(t, of.and(containerdPackage("2.1.4-1")).and(files{main: "version = 2\n"}), blueprint.Containers{})
		if refused := len(fatal(w)) > 0; refused == packaged {
			t.Errorf("%s beside a package of 2.1: the problems are %+v", program, w.Problems)
		}
	}
}
