package scripted_test

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/test/board"
	"github.com/kata-vfio/kata-vfio/test/docs"
	"github.com/kata-vfio/kata-vfio/test/docs/scripted"
)

// machine is a board as its distribution was installed. Its kernel drives no IOMMU until a reboot with the arguments for it.
type machine struct {
	*board.Tree
	*scripted.Node
	t     *testing.T
	aside string // where what a kernel does not show is
}

// leftOut is what a board has of a node that bootstrap and the plugin have changed.
const leftOut = "etc/containerd opt/kata etc/kata-containers var/lib/kata-vfio run/kata-vfio var/run/cdi run/cdi etc/cdi etc/systemd etc/modprobe.d etc/udev " +
	"etc/modules-load.d run/containerd kata-vfio"

// distribution has what a Debian-like distribution with containerd has, and what bootstrap runs of it.
func distribution() map[string]string {
	return map[string]string{
		"etc/os-release": "ID=ubuntu\nID_LIKE=debian\n", "etc/default/grub": "GRUB_CMDLINE_LINUX=\"\"\n", "boot/grub/grub.cfg": "x\n",
		"usr/sbin/grub-mkconfig": "default/grub.d\n", "usr/lib/systemd/systemd": "", "run/systemd/system/.keep": "", "run/udev/control": "", "etc/udev/rules.d/README": "",
		"usr/bin/containerd": "", "usr/lib/systemd/system/containerd.service": "[Service]\nExecStart=/usr/bin/containerd\n",
		"etc/containerd/config.toml": "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n", "proc/cmdline": "root=/dev/sda1 quiet\n",
	}
}

// kata is what the guides' archives of Kata unpack.
func kata() map[string]string {
	return map[string]string{
		"opt/kata/VERSION": "4.1.0\n", "opt/kata/bin/containerd-shim-kata-v2": "ELF", "opt/kata/libexec/virtiofsd": "ELF",
		"opt/kata/share/defaults/kata-containers/configuration-qemu-nvidia-gpu.toml": board.KataBase,
		"opt/kata/share/kata-containers/kata-containers-nvidia-gpu.img":              "image",
	}
}

// grub is what update-grub does, as far as arguments are concerned.
const grub = `. /etc/default/grub
for x in /etc/default/grub.d/*.cfg; do . "$x"; done
echo "linux /vmlinuz root=/dev/sda1 $GRUB_CMDLINE_LINUX" > /boot/grub/grub.cfg
`

func newMachine(t *testing.T, tree *board.Tree, more map[string]string) *machine {
	t.Helper()
	m := &machine{Tree: tree, Node: scripted.Open(t, tree.Root()), t: t, aside: t.TempDir()}
	for name := range strings.FieldsSeq(leftOut) {
		m.Delete(name)
	}
	m.putAll(distribution())
	m.putAll(more)
	m.Tree.Put("proc/sys/kernel/hostname", "worker-1\n")
	m.Script("usr/sbin/update-grub", grub)
	for _, tool := range []string{"update-initramfs", "systemctl", "udevadm", "modprobe"} {
		m.Script("usr/sbin/"+tool, "")
	}
	for program := range notOurs() {
		m.Script("usr/bin/"+program, "echo "+program+" \"$@\" >> /tmp/others\n")
	}
	m.Script("usr/sbin/reboot", "echo now > /tmp/reboot\n")
	m.Script("usr/bin/sudo", "exec \"$@\"\n")
	m.hideIOMMU(true)
	return m
}

func (m *machine) putAll(files map[string]string) {
	m.t.Helper()
	for name, text := range files {
		m.Tree.Put(name, text)
	}
}

// hideIOMMU takes what a kernel shows of its IOMMU away, or puts it back.
func (m *machine) hideIOMMU(hide bool) {
	m.t.Helper()
	for _, name := range []string{"sys/class/iommu", "sys/kernel/iommu_groups"} {
		from, to := m.Path(name), m.aside+"/"+path.Base(name)
		if !hide {
			from, to = to, from
		}
		if err := os.Rename(from, to); err != nil {
			m.t.Fatal(err)
		}
	}
}

// notOurs are the programs of the guides that are not kata-vfio's, with the reason why a test does not run them. A program that is neither
// here nor on the node fails the test.
func notOurs() map[string]string {
	return map[string]string{
		"lspci": "shows the machine's real functions", "uname": "shows this machine's kernel", "mstconfig": "configures a NIC's firmware",
		"kata-vfio-fabric": "talks to NVIDIA's Fabric Manager", "curl": "needs the internet", "tar": "unpacks what curl gets",
		"make": "builds what the node has", "podman": "needs a kernel of its own", "k3s": "needs a kernel of its own", "helm": "TestDocumentsRender of test/e2e renders the chart with these values",
		"kubectl": "needs a cluster; cmd/kubectl-kata_vfio follows `kubectl kata-vfio`", "install": "installs what the node has",
	}
}

// follow runs a step. It compares the output unless a program was run that is not ours, checks files that are applied, and reboots the
// machine if the step says so.
func (m *machine) follow(step docs.Step, failing ...string) {
	m.t.Helper()
	m.Delete("tmp/others")
	out, failed := m.Node.Run(step.Command)
	if !slices.Equal(failed, failing) {
		m.t.Errorf("fails with %q, want %q:\n%s%s", failed, failing, step.Command, out)
	}
	others, err := os.ReadFile(m.Path("tmp/others"))
	if err != nil && step.Output != "" {
		if err := docs.Match(step.Output, out); err != nil {
			m.t.Errorf("%s%v", step.Command, err)
		}
	}
	for _, applied := range regexp.MustCompile(`(?m)^kubectl .*apply -f (\S+)`).FindAllStringSubmatch(string(others), -1) {
		checkObjects(m.t, applied[1])
	}
	if _, err := os.Stat(m.Path("tmp/reboot")); err == nil {
		m.Delete("tmp/reboot")
		m.boot()
	}
}

// checkObjects checks that a file of the repository has objects for an API server.
func checkObjects(t *testing.T, file string) {
	t.Helper()
	for text := range strings.SplitSeq(docs.Read(t, file), "\n---\n") {
		var object struct {
			APIVersion, Kind string
			Metadata         struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(text), &object); err != nil || object.APIVersion == "" || object.Kind == "" || object.Metadata.Name == "" {
			t.Errorf("%s: %+v, %v", file, object, err)
		}
	}
}

// boot starts the kernel with the boot loader's arguments, and does what the rules for udev say about drivers and VFs.
func (m *machine) boot() {
	m.t.Helper()
	_, arguments, _ := strings.Cut(m.Text("boot/grub/grub.cfg"), "linux /vmlinuz ")
	if !strings.Contains(arguments, "intel_iommu=on") {
		m.t.Fatalf("the kernel would drive no IOMMU with the arguments %s", arguments)
	}
	m.hideIOMMU(false)
	m.Reboot()
	m.Tree.Put("proc/cmdline", arguments)
	for name := range distribution() {
		if strings.HasPrefix(name, "run/") {
			m.Tree.Put(name, "")
		}
	}
	rules := m.Text("etc/udev/rules.d/10-kata-vfio.rules")
	m.setResets(rules)
	for _, rule := range regexp.MustCompile(`KERNEL=="([0-9a-f:.]+)", ATTR\{driver_override\}="vfio-pci"`).FindAllStringSubmatch(rules, -1) {
		dir := "sys/bus/pci/devices/" + rule[1]
		m.write(dir+"/driver_override", "vfio-pci")
		driver, err := os.Readlink(m.Path(dir + "/driver"))
		if err != nil {
			m.t.Fatal(err)
		}
		m.write("sys/bus/pci/drivers/"+path.Base(driver)+"/unbind", rule[1])
		m.write("sys/bus/pci/drivers_probe", rule[1])
	}
}

// setResets does what bootstrap's rule for udev says about the GPUs' reset.
func (m *machine) setResets(rules string) {
	m.t.Helper()
	const rule = `ACTION=="add", SUBSYSTEM=="pci", ATTR{vendor}=="0x10de", ATTR{class}=="0x0302*", TEST!="physfn", ATTR{reset_method}="bus"`
	if !strings.Contains(rules, "reset_method") {
		return // a guide without it
	}
	if !strings.Contains(rules, "\n"+rule+"\n") {
		m.t.Fatalf("the rules are\n%s, want\n%s", rules, rule)
	}
	for i := range 8 {
		m.write("sys/bus/pci/devices/"+m.Devices[fmt.Sprintf("gpu%d", i)].String()+"/reset_method", "bus")
	}
}

func (m *machine) write(name, value string) {
	m.t.Helper()
	if err := m.Write(name, []byte(value)); err != nil {
		m.t.Fatal(err)
	}
}

// yamlOf are the blocks of YAML below a heading.
func yamlOf(t *testing.T, file, heading string) []string {
	t.Helper()
	var all []string
	for _, m := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(docs.Section(t, file, heading), -1) {
		all = append(all, m[1])
	}
	return all
}

// prepare does what the plugin and Kata did for a tenant's pod with a GPU. The plugin keeps the others.
func (m *machine) prepare(tenant, gpu string, others ...string) {
	m.t.Helper()
	m.NewLedger()
	for _, other := range others {
		m.Keep(m.Devices[other])
		m.ClearMaster(m.Devices[other])
	}
	m.Give(tenant, "gpu", m.Devices[gpu])
	m.AskedContainerd(func(*facts.RunningContainerd) {})
	m.Tree.Run(tenant)
	m.Node.Put("run/kata-vfio/README", "")
	if err := unix.Mknod(m.Path("run/kata-vfio/pod-resources.sock"), unix.S_IFSOCK|0o600, 0); err != nil {
		m.t.Fatal(err)
	}
}

// settle ends the plugin's part: the files of this node have their owners, unlike a copy's.
func (m *machine) settle() {
	m.t.Helper()
	m.Delete(facts.StatFile)
	m.KeepBaseline()
}
