package board

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/runtimeclass"
)

// Places of the handler kata-gpu.
const (
	ContainerdConfig = "etc/containerd/config.toml"
	ContainerdDropIn = "etc/containerd/conf.d/kata-gpu.toml"
	kataDir          = "opt/kata/share/defaults/kata-containers/kata-gpu"
	KataConfig       = kataDir + "/configuration.toml"
	KataDropIns      = kataDir + "/config.d"
)

// KataBase is what counts of Kata 4.1's configuration-qemu-nvidia-gpu.toml as its
// Makefile renders it.
const KataBase = `
[hypervisor.qemu]
path = "/opt/kata/bin/qemu-system-x86_64"
kernel = "/opt/kata/share/kata-containers/vmlinuz-nvidia-gpu.container"
image = "/opt/kata/share/kata-containers/kata-containers-nvidia-gpu.img"
machine_type = "q35"
rootfs_type = "erofs"
rootless = false
enable_annotations = ["enable_iommu", "kernel_params", "kernel_verity_params"]
valid_hypervisor_paths = ["/opt/kata/bin/qemu-system-x86_64"]
kernel_params = "cgroup_no_v1=all pci=realloc pci=nocrs pci=assign-busses"
kernel_verity_params = ""
firmware = "/opt/kata/share/ovmf/OVMF.fd"
seccompsandbox = ""
default_memory = 8192
shared_fs = "virtio-fs"
virtio_fs_daemon = "/opt/kata/libexec/virtiofsd"
valid_virtio_fs_daemon_paths = ["/opt/kata/libexec/virtiofsd"]
virtio_fs_extra_args = ["--thread-pool-size=1", "--announce-submounts"]
enable_vhost_user_store = false
vhost_user_store_path = "/var/run/kata-containers/vhost-user"
valid_vhost_user_store_paths = ["/var/run/kata-containers/vhost-user"]
enable_iommu = false
enable_debug = false
extra_monitor_socket = ""
hot_plug_vfio = "no-port"
cold_plug_vfio = "root-port"
pcie_root_port = 8
entropy_source= "/dev/urandom"
valid_entropy_sources = ["/dev/urandom","/dev/random",""]
guest_hook_path = ""
guest_memory_dump_path = ""
disable_selinux = false
disable_guest_selinux = true

[factory]
enable_template = false
template_path = "/run/vc/vm/template"
vm_cache_number = 0

[agent.kata]
enable_debug = false
enable_tracing = false
debug_console_enabled = false

[runtime]
enable_debug = false
internetworking_model = "tcfilter"
disable_guest_seccomp = true
enable_tracing = false
sandbox_cgroup_only = true
static_sandbox_resource_mgmt = true
sandbox_bind_mounts = []
vfio_mode = "guest-kernel"
enable_pprof = false
pod_resource_api_sock = "/var/lib/kubelet/pod-resources/kubelet.sock"
`

// hardening is what a site adds to what Kata ships and to this project's drop-ins.
const hardening = `
[hypervisor.qemu]
seccompsandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
kernel_verity_params = "root_hash=6c1e4e3a5f0d2b7c,salt=00,data_blocks=65536,data_block_size=4096,hash_block_size=4096"
[runtime]
disable_guest_seccomp = false
`

// goodRuntime sets up what the checks of RT look at: this project's own drop-ins
// over containerd's and Kata's configuration.
func (t *Tree) goodRuntime() {
	t.Put(ContainerdConfig, "version = 3\nimports = ['/etc/containerd/conf.d/*.toml']\n")
	t.Put(ContainerdDropIn, t.Fragment("containerd/kata-gpu.toml"))
	t.Put(KataConfig, KataBase)
	t.Put(KataDropIns+"/50-kata-gpu.toml", t.Fragment("kata/50-kata-gpu.toml"))
	t.Put(KataDropIns+"/60-site.toml", hardening)
	t.Put("etc/systemd/system/sockets.target.wants/kata-vfio-pod-resources.socket", t.Fragment("systemd/kata-vfio-pod-resources.socket"))
	t.Put("sys/fs/selinux/enforce", "1\n")
	t.Put("var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\nauthentication: {anonymous: {enabled: false}}\nauthorization: {mode: Webhook}\n")
	for _, file := range []string{
		ContainerdConfig, ContainerdDropIn, KataConfig, KataDropIns + "/50-kata-gpu.toml", KataDropIns + "/60-site.toml",
		"opt/kata/share/kata-containers/vmlinuz-nvidia-gpu.container", "opt/kata/share/kata-containers/kata-containers-nvidia-gpu.img",
		"opt/kata/share/ovmf/OVMF.fd",
	} {
		t.Own(file, "100644", 0, 0)
	}
	for _, file := range []string{"opt/kata/bin/containerd-shim-kata-v2", "opt/kata/bin/qemu-system-x86_64", "opt/kata/libexec/virtiofsd"} {
		t.Own(file, "100755", 0, 0)
	}
	for _, tenant := range []string{"t1", "t2"} {
		t.Run(tenant, "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/"+tenant+"/hostname", "/var/lib/kubelet/pods/"+tenant+"/etc-hosts")
	}
	t.AskedContainerd(func(*facts.RunningContainerd) {})
	t.Own("run/kata-vfio", "40700", 0, 0)
	t.Own("run/kata-vfio/pod-resources.sock", "140600", 0, 0)
	t.Own("var/run/nri/nri.sock", "140755", 0, 0)
	t.Own("var/lib/kubelet/pod-resources", "40750", 0, 0)
}

// Fragment returns one of the files that runtimeclass/ has for a node.
func (t *Tree) Fragment(name string) string {
	t.TB.Helper()
	text, err := runtimeclass.Files.ReadFile(name)
	if err != nil {
		t.TB.Fatal(err)
	}
	return string(text)
}

// Run has containerd run a container of a tenant's pod, which has the mounts.
func (t *Tree) Run(tenant string, mounts ...string) {
	t.TB.Helper()
	spec := specs.Spec{Annotations: map[string]string{
		"io.kubernetes.cri.sandbox-namespace": tenant, "io.kubernetes.cri.sandbox-name": "pod-of-" + tenant,
	}}
	for _, source := range mounts {
		spec.Mounts = append(spec.Mounts, specs.Mount{Source: source, Type: "bind"})
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.TB.Fatal(err)
	}
	t.Put("run/containerd/io.containerd.runtime.v2.task/k8s.io/container-of-"+tenant+"/config.json", string(text))
}

// AskedContainerd makes containerd answer as it does after a restart with the files of the board. change may modify the answer.
func (t *Tree) AskedContainerd(change func(*facts.RunningContainerd)) {
	t.TB.Helper()
	said := &facts.RunningContainerd{
		Socket: "/run/containerd/containerd.sock", Version: "v2.4.2",
		Plugins: []facts.ContainerdPlugin{{Type: "io.containerd.grpc.v1", ID: "cri"}, {Type: "io.containerd.nri.v1", ID: "nri"}},
		CRI: &facts.CRI{CDIDirs: []string{"/etc/cdi", "/var/run/cdi"}, Handlers: map[string]facts.CRIHandler{
			"runc": {Type: "io.containerd.runc.v2", Sandboxer: "podsandbox"},
			"kata-gpu": {
				Type: "io.containerd.kata-gpu.v2", Path: "/opt/kata/bin/containerd-shim-kata-v2", Config: "/" + KataConfig,
				PrivilegedWithoutHostDevices: true, Sandboxer: "podsandbox",
			},
		}},
	}
	change(said)
	text, err := json.Marshal(said)
	if err != nil {
		t.TB.Fatal(err)
	}
	t.Put(runtimes.RunningFile, string(text))
}

// AddToKata adds text to Kata's configuration for kata-gpu, after everything else in it.
func (t *Tree) AddToKata(text string) {
	t.TB.Helper()
	t.Put(KataDropIns+"/99-fault.toml", text)
	t.Own(KataDropIns+"/99-fault.toml", "100644", 0, 0)
}

// AddToContainerd does the same to containerd's.
func (t *Tree) AddToContainerd(text string) {
	t.TB.Helper()
	t.Put("etc/containerd/conf.d/zz-fault.toml", "version = 3\n"+text)
	t.Own("etc/containerd/conf.d/zz-fault.toml", "100644", 0, 0)
}

// Process is a process of the node, as proc shows it.
type Process struct {
	PID       int
	Comm      string
	Exe       string
	Arguments []string
	UID       int
	// Parent is the PID of the parent; zero means 1.
	Parent int
	// Container is the id of its container and Pod the UID of its pod; empty for a
	// process of the node itself.
	Container, Pod string
	// Files are what it has open, as the texts of the links in proc: "/dev/vfio/15",
	// "anon_inode:kvm-vm".
	Files []string
	// Maps are the files that it has mapped.
	Maps []string
	// Mems are the NUMA nodes that it may have memory of; empty means "0-1".
	Mems string
	// MemoryMax is the limit of its cgroup's memory. Empty means 128 GiB for a process in a pod, and no limit for a process in
	// none.
	MemoryMax string
}

// startTime is when processes start, in clock ticks after boot.
const startTime = 8675309

// The namespaces of the node's own processes.
const (
	pidNamespace   = "pid:[4026531836]"
	mountNamespace = "mnt:[4026531841]"
)

// nextPID returns a number that no process had.
func (t *Tree) nextPID() int {
	t.processes++
	return 4710 + t.processes
}

// Start adds a process, with a number of its own where it has none.
func (t *Tree) Start(p Process) journal.Process {
	t.TB.Helper()
	if p.PID == 0 {
		p.PID = t.nextPID()
	}
	dir := "proc/" + strconv.Itoa(p.PID)
	t.Put(dir+"/comm", p.Comm+"\n")
	t.Put(dir+"/stat", fmt.Sprintf("%d (%s) S 1%s %d 0\n", p.PID, p.Comm, strings.Repeat(" 0", 17), startTime))
	t.Put(dir+"/status", fmt.Sprintf("Name:\t%s\nPid:\t%d\nPPid:\t%d\nUid:\t%[4]d\t%[4]d\t%[4]d\t%[4]d\nCapEff:\t000001ffffffffff\nMems_allowed_list:\t%s\n", p.Comm, p.PID, max(p.Parent, 1), p.UID, p.mems()))
	t.Put(dir+"/cmdline", strings.Join(p.Arguments, "\x00")+"\x00")
	t.Put(dir+"/limits", "Limit                     Soft Limit           Hard Limit           Units     \n"+
		"Max locked memory         unlimited            unlimited            bytes     \n")
	t.Put(dir+"/cgroup", "0::"+p.cgroup()+"\n")
	t.boundMemory(&p)
	t.Put(dir+"/maps", maps(p.Maps))
	if p.Exe != "" {
		t.Symlink(dir+"/exe", p.Exe)
	}
	if p.Container == "" {
		t.Symlink(dir+"/ns/pid", pidNamespace)
		t.Symlink(dir+"/ns/mnt", mountNamespace)
	}
	t.Symlink(dir+"/fd/0", "/dev/null")
	for i, file := range p.Files {
		t.Symlink(fmt.Sprintf("%s/fd/%d", dir, i+3), file)
		t.Put(fmt.Sprintf("%s/fdinfo/%d", dir, i+3), "pos:\t0\nflags:\t02000002\n")
	}
	return journal.Process{PID: p.PID, StartTime: startTime}
}

func (p *Process) mems() string {
	if p.Mems == "" {
		return "0-1"
	}
	return p.Mems
}

// cgroup returns the path that containerd and systemd give a sandbox.
func (p *Process) cgroup() string {
	if p.Container == "" {
		return "/system.slice/" + p.Comm + ".service"
	}
	pod := strings.ReplaceAll(p.Pod, "-", "_")
	return "/kubepods.slice/kubepods-pod" + pod + ".slice/cri-containerd-" + p.Container + ".scope"
}

// boundMemory sets the bounds of a process' cgroups: as the kubelet does, the pod's
// and not the container's.
func (t *Tree) boundMemory(p *Process) {
	bound := p.MemoryMax
	if bound == "" {
		bound = "max"
		if p.Pod != "" {
			bound = "137438953472"
		}
	}
	leaf := "sys/fs/cgroup" + p.cgroup()
	t.Put(leaf+"/memory.max", "max\n")
	t.Put(path.Dir(leaf)+"/memory.max", bound+"\n")
}

func maps(files []string) string {
	var text strings.Builder
	text.WriteString("555555554000-555555b2e000 r--p 00000000 08:01 1835020 /usr/bin/program\n")
	for i, file := range files {
		fmt.Fprintf(&text, "7f%010x-7f%010x rw-s 00000000 00:15 %d %s\n", i<<24, i<<24+1<<20, 4000+i, file)
	}
	return text.String()
}

// Symlink makes a link whose target is exactly the text.
func (t *Tree) Symlink(name, text string) {
	t.TB.Helper()
	name = t.Path(name)
	if err := os.MkdirAll(path.Dir(name), 0o755); err != nil {
		t.TB.Fatal(err)
	}
	if err := os.Symlink(text, name); err != nil {
		t.TB.Fatal(err)
	}
}
