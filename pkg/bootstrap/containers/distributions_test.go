package containers_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/test/tree"
)

// Files of Kubernetes distributions.
const (
	rancher  = "var/lib/rancher/k3s/agent/etc/containerd/"
	rke2     = "var/lib/rancher/rke2/agent/etc/containerd/"
	k0s      = "etc/k0s/containerd.toml"
	k0sMark  = "# k0s_managed=true\n"
	microK8s = "var/snap/microk8s/current/args/"
	base3    = `{{ template "base" . }}` + "\n"
	services = "etc/systemd/system/"
)

// handler is a section of a handler that runs Kata, of a configuration with version 3.
func handler(name string) string {
	return "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes." + name + "]\nruntime_type = 'io.containerd.kata.v2'\n"
}

// distributionCase is a node on which a distribution starts containerd, or may.
type distributionCase struct {
	name string
	files
	// audit are words of `handlers`. read is the file that both bootstrap and the audit name as containerd's.
	audit, read string
	// dropIn is where bootstrap's drop-in goes, or "" if it is refused.
	dropIn string
	// says are words of bootstrap's problems, never is one that must not be there.
	says  []string
	never string
}

func distributionCases() []distributionCase {
	const v3 = "version = 3\n"
	k3sImports := v3 + "imports = [\"/" + rancher + "config-v3.toml.d/*.toml\"]\n"
	twice := v3 + "[a]\n[a]\n"
	return []distributionCase{
		{
			name:  "k0s beside the file of a containerd that serves no CRI",
			files: files{k0s: k0sMark + v3 + "imports = ['/etc/k0s/containerd.d/*.toml']\n", "etc/k0s/containerd.d/kata.toml": v3 + handler("kata"), main: "disabled_plugins = ['cri']\n"},
			audit: "kata: Kata's", read: "/" + k0s, dropIn: "etc/k0s/containerd.d/kata-gpu.toml",
		},
		{
			name: "K3s beside a file of containerd's package", files: files{rancher + "config.toml": k3sImports, rancher + "config-v3.toml.d/kata.toml": v3 + handler("kata"), main: v3},
			audit: "kata: Kata's", read: "/" + rancher + "config.toml", dropIn: rancher + "config-v3.toml.d/kata-gpu.toml",
		},
		{
			name: "RKE2 beside a file of containerd's package", files: files{rke2 + "config.toml": v3 + "imports = ['/" + rke2 + "config-v3.toml.d/*.toml']\n", rke2 + "config-v3.toml.d/kata.toml": v3 + handler("kata"), main: v3},
			audit: "kata: Kata's", read: "/" + rke2 + "config.toml", dropIn: rke2 + "config-v3.toml.d/kata-gpu.toml",
		},
		{
			name: "MicroK8s beside a file of containerd's package", files: files{microK8s + "containerd.toml": v3 + "imports = ['/etc/containerd/conf.d/*.toml']\n", "etc/containerd/conf.d/kata.toml": v3 + handler("kata"), main: v3},
			audit: "kata: Kata's", read: "/" + microK8s + "containerd.toml", dropIn: dropIn,
		},
		{
			name: "a service with another file", files: files{services + "containerd.service": "[Service]\nExecStart=/usr/bin/containerd --config /opt/containerd.toml\n", "opt/containerd.toml": v3 + handler("kata"), main: v3},
			audit: "kata: Kata's", read: "/opt/containerd.toml", dropIn: dropIn,
		},
		{
			name:  "k0s of containerd 1",
			files: files{k0s: k0sMark + "version = 2\nimports = ['/run/k0s/containerd-cri.toml']\n", "run/k0s/containerd-cri.toml": "version = 2\n"},
			audit: "no runtime handler of this node runs Kata", read: "/" + k0s, says: []string{"which containerd 1 also reads"},
		},
		{
			name:  "k0s that merges drop-ins into a file of its own",
			files: files{k0s: k0sMark + v3 + "imports = ['/run/k0s/containerd-cri.toml']\n", "run/k0s/containerd-cri.toml": v3},
			audit: "no runtime handler of this node runs Kata", read: "/" + k0s, dropIn: "etc/k0s/containerd.d/kata-gpu.toml", never: "import",
		},
		{
			name: "k0s with CRI off in the file that it merges", files: files{k0s: k0sMark + "version = 2\nimports = ['/run/k0s/containerd-cri.toml']\n", "run/k0s/containerd-cri.toml": "version = 2\ndisabled_plugins = ['cri']\n"},
			audit: "containerd's CRI plugin is disabled by disabled_plugins of /run/k0s/containerd-cri.toml", read: "/" + k0s, says: []string{"disables the plugin cri"},
		},
		{
			name: "k0s that is installed and did not start yet", files: files{services + "k0sworker.service": "[Service]\nExecStart=/usr/local/bin/k0s worker\n", main: v3 + handler("kata")},
			audit: "no runtime handler of this node runs Kata", read: "/" + k0s, dropIn: "etc/k0s/containerd.d/kata-gpu.toml", never: "import",
		},
		{
			name: "k0s with a file of the site's", files: files{k0s: v3 + handler("kata"), services + "k0sworker.service": "[Service]\n"},
			audit: "kata: Kata's", read: "/" + k0s, dropIn: "etc/k0s/containerd.d/kata-gpu.toml",
		},
		{
			name: "k0s with a drop-in that breaks what it merges", files: files{k0s: k0sMark + "version = 2\nimports = ['/run/k0s/containerd-cri.toml']\n", "run/k0s/containerd-cri.toml": twice},
			audit: "Correct the files in /etc/k0s/containerd.d", read: "/" + k0s, says: []string{"Correct the files in /etc/k0s/containerd.d, then run systemctl restart k0scontroller, or k0sworker"},
		},
		{
			name: "K3s that is installed and did not start yet", files: files{services + "k3s.service": "[Service]\n"},
			audit: "no runtime handler", read: "/" + rancher + "config.toml", dropIn: rancher + "config-v3.toml.d/kata-gpu.toml", says: []string{"K3s did not start on this node yet", "from K3s 1.36 on"},
		},
		{
			name: "K3s with its data elsewhere by its file", files: files{
				"etc/rancher/k3s/config.yaml": "data-dir: /data/k3s\n", "data/k3s/agent/etc/containerd/config.toml": v3 + "imports = ['/data/k3s/agent/etc/containerd/config-v3.toml.d/*.toml']\n" + handler("kata"),
			},
			audit: "kata: Kata's", read: "/data/k3s/agent/etc/containerd/config.toml", dropIn: "data/k3s/agent/etc/containerd/config-v3.toml.d/kata-gpu.toml", never: "did not start",
		},
		{
			name: "K3s that moved its data by a drop-in of its file, and did not start since", files: files{
				"etc/rancher/k3s/config.yaml": "data-dir: /old\n", "etc/rancher/k3s/config.yaml.d/1.yaml": "data-dir: /new\n", "old/agent/etc/containerd/config.toml": v3, services + "k3s.service": "[Service]\n",
			},
			audit: "no runtime handler", read: "/new/agent/etc/containerd/config.toml", dropIn: "new/agent/etc/containerd/config-v3.toml.d/kata-gpu.toml", says: []string{"K3s did not start on this node yet"},
		},
		{
			name: "K3s whose service overrides its file", files: files{
				"etc/rancher/k3s/config.yaml": "data-dir: /data/k3s\n", services + "k3s-agent.service": "[Service]\nExecStart=/usr/local/bin/k3s agent -d /flag\n",
				"flag/agent/etc/containerd/config.toml": v3 + "imports = ['/etc/containerd/conf.d/*.toml']\n" + handler("kata"), "data/k3s/agent/etc/containerd/config.toml": v3,
			},
			audit: "kata: Kata's", read: "/flag/agent/etc/containerd/config.toml", dropIn: dropIn,
		},
		{
			name: "RKE2 with its data and its file elsewhere", files: files{
				services + "rke2-agent.service": "[Service]\nEnvironment=RKE2_CONFIG_FILE=/srv/rke2.yaml RKE2_DATA_DIR=/nowhere\nExecStart=/usr/local/bin/rke2 agent\n", "srv/rke2.yaml": "data-dir: \"/srv/rke2/\"\n",
				"srv/rke2/agent/etc/containerd/config.toml": v3 + "imports = ['/srv/rke2/agent/etc/containerd/config-v3.toml.d/*.toml']\n" + handler("kata"),
			},
			audit: "kata: Kata's", read: "/srv/rke2/agent/etc/containerd/config.toml", dropIn: "srv/rke2/agent/etc/containerd/config-v3.toml.d/kata-gpu.toml",
		},
		{
			name: "RKE2 with its data elsewhere by a variable", files: files{
				services + "rke2-agent.service":             "[Service]\nEnvironment=RKE2_DATA_DIR=/srv/rke2\nExecStart=/usr/local/bin/rke2 agent\n",
				"srv/rke2/agent/etc/containerd/config.toml": v3 + "imports = ['/etc/containerd/conf.d/*.toml']\n" + handler("kata"),
			},
			audit: "kata: Kata's", read: "/srv/rke2/agent/etc/containerd/config.toml", dropIn: dropIn,
		},
		{
			name: "k0s with its run directory elsewhere", files: files{
				services + "k0sworker.service": "[Service]\nExecStart=/usr/local/bin/k0s worker --run-dir=/srv/run\n", k0s: k0sMark + "version = 2\nimports = ['/srv/run/containerd-cri.toml']\n", "srv/run/containerd-cri.toml": twice,
			},
			audit: "Correct the files in /etc/k0s/containerd.d", read: "/" + k0s, says: []string{"Correct the files in /etc/k0s/containerd.d"},
		},
		{
			name: "K3s before it imported drop-ins", files: files{rancher + "config.toml": v3},
			audit: "no runtime handler", read: "/" + rancher + "config.toml", says: []string{"Upgrade to K3s 1.36 or newer", "Don't add imports to a template"},
		},
		{
			name: "RKE2 before it imported drop-ins, with a template", files: files{rke2 + "config.toml": v3, rke2 + "config-v3.toml.tmpl": base3},
			audit: "no runtime handler", read: "/" + rke2 + "config.toml", says: []string{"Upgrade to RKE2 1.36 or newer"},
		},
		{
			name: "K3s with a template that replaces its own", files: files{rancher + "config.toml": v3, rancher + "config.toml.tmpl": v3},
			audit: "no runtime handler", read: "/" + rancher + "config.toml", says: []string{"/" + rancher + "config.toml.tmpl replaces the template of K3s", "config-v3.toml.d/*.toml"},
		},
		{
			name: "K3s with a template of version 2 that did not make its file", files: files{rancher + "config.toml": v3, rancher + "config.toml.tmpl": "version = 2\n"},
			audit: "no runtime handler", read: "/" + rancher + "config.toml", never: "replaces the template",
			says: []string{"K3s did not write the file from /" + rancher + "config.toml.tmpl", "to /" + rancher + "config-v3.toml.tmpl below", "and remove /" + rancher + "config.toml.tmpl"},
		},
		{
			name: "K3s before the upgrade that breaks a template with imports", files: files{
				rancher + "config.toml": "imports = ['/etc/containerd/conf.d/*.toml']\n" + v3, rancher + "config-v3.toml.tmpl": "imports = ['/etc/containerd/conf.d/*.toml']\n" + base3,
			},
			audit: "no runtime handler", read: "/" + rancher + "config.toml", dropIn: dropIn, says: []string{"config-v3.toml.tmpl has imports", "containerd does not start with both", "before the upgrade"},
		},
		{
			name: "K3s after the upgrade that breaks a template with imports", files: files{
				rancher + "config.toml": "imports = ['/etc/containerd/conf.d/*.toml']\n" + k3sImports, rancher + "config-v3.toml.tmpl": "imports = ['/etc/containerd/conf.d/*.toml']\n{{- template \"base\" . -}}\n",
			},
			audit: "Remove the line imports from that template", read: "/" + rancher + "config.toml", says: []string{"/" + rancher + "config-v3.toml.tmpl", "Remove the line imports from that template"},
		},
		{
			name: "K3s with a table that the template repeats", files: files{rancher + "config.toml": twice, rancher + "config-v3.toml.tmpl": base3 + "[a]\n"},
			audit: "the container runtime's configuration can't be read, so handlers may be missing: /" + rancher + "config.toml:", read: "/" + rancher + "config.toml", says: []string{"Correct that template, then run systemctl restart k3s, or k3s-agent"},
		},
		{
			name: "K3s with a file that somebody edited", files: files{rancher + "config.toml": twice},
			audit: "K3s writes this file at each start", read: "/" + rancher + "config.toml", says: []string{"Run systemctl restart k3s"},
		},
		{
			name: "MicroK8s without imports", files: files{microK8s + "containerd.toml": v3},
			audit: "no runtime handler", read: "/" + microK8s + "containerd.toml", says: []string{"containerd-template.toml", "systemctl restart snap.microk8s.daemon-containerd"},
		},
		{
			name: "containerd's own file, which can't be parsed", files: files{main: twice},
			audit: "the container runtime's configuration can't be read, so handlers may be missing: /" + main + ":", read: "/" + main, says: []string{"Correct the file."}, never: "each start",
		},
	}
}

// The audit and bootstrap read the same file of containerd's, and both say what is wrong with it in the words of what
// writes it.
func TestContainerdsFileIsThatOfWhatStartsIt(t *testing.T) {
	for _, c := range distributionCases() {
		t.Run(c.name, func(t *testing.T) {
			of := kata().and(c.files)
			fsys, w := open(t, of, blueprint.Containers{})
			var out strings.Builder
			if err := audit.NewHandlers(facts.New(fsys, &device.Snapshot{})).Write(&out, "text"); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), c.audit) || c.never != "" && strings.Contains(out.String(), c.never) {
				t.Errorf("the audit says %q, want %q", out.String(), c.audit)
			}
			if got := fact(w, "containerd", "configuration"); got != c.read {
				t.Errorf("bootstrap reads %q, want %q", got, c.read)
			}
			if r := seen(fsys); len(r.Files)+len(r.Damaged) > 0 && append(r.Files, r.Damaged...)[0].Path != c.read {
				t.Errorf("the audit reads %+v, damaged %+v", r.Files, r.Damaged)
			}
			checkDropIn(t, w, c)
			checkProblems(t, w, c)
		})
	}
}

// fact returns a fact of a part, or "" if it has none of the name.
func fact(w state.Wanted, part, name string) string {
	for _, f := range w.Facts {
		if f.Part == part && f.Name == name {
			return f.Value
		}
	}
	return ""
}

func checkDropIn(t *testing.T, w state.Wanted, c distributionCase) {
	t.Helper()
	want := c.dropIn != ""
	if refused := len(fatal(w)) > 0; refused == want || want && content(w, c.dropIn) == "" {
		t.Errorf("wanted are %v, the problems %+v", paths(w), w.Problems)
	}
	own := strings.HasPrefix(c.files[k0s], "version") || !slices.Contains([]string{"/" + k0s, "/" + microK8s + "containerd.toml"}, c.read) && !strings.HasSuffix(c.read, "/agent/etc/containerd/config.toml")
	if edits := content(w, strings.TrimPrefix(c.read, "/")) != ""; edits && !own {
		t.Errorf("%s is edited, but its distribution writes it", c.read)
	}
}

func checkProblems(t *testing.T, w state.Wanted, c distributionCase) {
	t.Helper()
	var text strings.Builder
	for _, p := range w.Problems {
		if p.Part == "containerd" {
			text.WriteString(p.Text + " " + p.Fix + "\n")
		}
	}
	for _, word := range c.says {
		if !strings.Contains(text.String(), word) {
			t.Errorf("the problems are %q; they lack %q", text.String(), word)
		}
	}
	if c.never != "" && strings.Contains(text.String(), c.never) {
		t.Errorf("the problems are %q; they have %q", text.String(), c.never)
	}
}

// A requirement on a distribution's directory ends when the directory exists.
func TestDropInOfADistributionIsWrittenOnce(t *testing.T) {
	for _, c := range distributionCases() {
		if c.dropIn == "" {
			continue
		}
		fsys, w := open(t, kata().and(c.files), blueprint.Containers{})
		apply(t, fsys, w)
		if left := changes(t, fsys, wanted(t, fsys, blueprint.Containers{})); len(left) > 0 {
			t.Errorf("%s: it wants %v again", c.name, left)
		}
	}
}

// The kubelet of a distribution has its files, flags and directory elsewhere.
func TestKubeletOfADistributionIsReadWhereItIs(t *testing.T) {
	const timeout, plugins = "runtime request timeout", "directory plugins"
	for name, c := range map[string]struct {
		of   files
		want map[string]string
	}{
		"k0s that runs": {
			files{k0s: k0sMark, "run/k0s/kubelet/config.yaml": "runtimeRequestTimeout: 15m\n", "var/lib/k0s/kubelet/plugins/x": "y", "var/lib/kubelet/config.yaml": "runtimeRequestTimeout: 9m\n"},
			map[string]string{timeout: "15m", plugins: "there"},
		},
		"k0s that did not start": {
			files{services + "k0sworker.service": "[Service]\nExecStart=/usr/local/bin/k0s worker --kubelet-root-dir=/data/kubelet --kubelet-extra-args='--runtime-request-timeout=12m --v=2'\n", "data/kubelet/plugins/x": "y"},
			map[string]string{timeout: "12m", plugins: "there", "cgroup driver": "not known: k0s writes the kubelet's configuration when it starts"},
		},
		"K3s with flags": {
			files{
				rancher + "config.toml": "version = 3\n", "etc/rancher/k3s/config.yaml": "kubelet-arg:\n- runtime-request-timeout=3m\n- v=2\n",
				"etc/rancher/k3s/config.yaml.d/10.yaml": "kubelet-arg+: [runtime-request-timeout=15m]\n", "etc/rancher/k3s/config.yaml.d/20.bak": "kubelet-arg: [runtime-request-timeout=1m]\n",
				"var/lib/kubelet/plugins/x": "y",
			},
			map[string]string{timeout: "15m", plugins: "there"},
		},
		"K3s with a list that a later file replaces": {
			files{
				rancher + "config.toml": "version = 3\n", "etc/rancher/k3s/config.yaml": "kubelet-arg: [runtime-request-timeout=3m]\n", "etc/rancher/k3s/config.yaml.d/10.yaml": "kubelet-arg: v=2\n",
				"var/lib/rancher/k3s/agent/etc/kubelet.conf.d/00-k3s-defaults.conf": "cgroupDriver: systemd\n",
			},
			map[string]string{timeout: "not set", "cgroup driver": "systemd", plugins: "not there"},
		},
		"RKE2 with flags of its service": {
			files{rke2 + "config.toml": "version = 3\n", services + "rke2-agent.service": "[Service]\nExecStart=/usr/local/bin/rke2 agent --kubelet-arg=root-dir=/data/kubelet --kubelet-arg runtime-request-timeout=4m\n", "data/kubelet/plugins/x": "y"},
			map[string]string{timeout: "4m", plugins: "there"},
		},
		"MicroK8s": {
			files{microK8s + "containerd.toml": "version = 3\n", microK8s + "kubelet": "# flags\n--root-dir=${SNAP_COMMON}/var/lib/kubelet\n--runtime-request-timeout=10m\n--cgroup-driver=\"systemd\"\n", "var/snap/microk8s/common/var/lib/kubelet/plugins/x": "y"},
			map[string]string{timeout: "10m", plugins: "there", "cgroup driver": "systemd"},
		},
	} {
		w := wanted(t, tree.Open(t, c.of), blueprint.Containers{Runtime: blueprint.RuntimeNone})
		got := map[string]string{}
		for name := range c.want {
			got[name] = fact(w, "kubelet", name)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: the facts differ (-want +got):\n%s", name, diff)
		}
	}
}
