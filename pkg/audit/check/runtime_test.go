package check_test

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/test/board"
)

const kataGPU = "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata-gpu]\n"

// Their boards have no functions, which these rules don't look at, and so are made
// in no time.

// kataFault is one line or more of Kata's configuration.
func kataFault(rule, about, text string) fault {
	return fault{rule: rule, about: about, board: board.New, plant: func(t *board.Tree) { t.AddToKata(text) }}
}

// containerdFault is the same of containerd's.
func containerdFault(rule, about, text string) fault {
	return fault{rule: rule, about: about, board: board.New, plant: func(t *board.Tree) { t.AddToContainerd(text) }}
}

func runtimeFaults() []fault {
	return slices.Concat(handlerFaults(), kataFaults(), vmmFaults(), ownerFaults(), mountFaults(), cleanupFaults(), sizeFaults(), []fault{
		{rule: "RT-004", about: "no socket", board: board.New, plant: func(t *board.Tree) {
			t.AddToKata("[runtime]\npod_resource_api_sock = '/run/elsewhere.sock'\n")
		}},
		{rule: "RT-004", about: "a file in its place", board: board.New, plant: func(t *board.Tree) {
			t.Own("run/kata-vfio/pod-resources.sock", "100600", 0, 0)
		}},
		{rule: "RT-004", about: "a copy that does not say", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.AddToKata("[runtime]\npod_resource_api_sock = '/run/elsewhere.sock'\n")
			t.Put("run/elsewhere.sock", "")
		}},
		{rule: "RT-004", about: "none after a boot", board: board.New, plant: func(t *board.Tree) {
			t.Delete("etc/systemd/system/sockets.target.wants")
		}},
		{rule: "RT-004", about: "a file that Kata can't parse", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.AddToKata("[runtime\n")
		}},
		{rule: "RT-028", about: "a read-only port", board: board.New, plant: func(t *board.Tree) {
			t.Put("var/lib/kubelet/config.yaml", "readOnlyPort: 10255\n")
		}},
		{rule: "RT-028", about: "a flag over the file", board: board.New, plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: "kubelet", Arguments: []string{"/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml", "--anonymous-auth=true"}})
		}},
		{rule: "RT-028", about: "a kubelet of which nobody can tell whose it is", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put("proc/901/comm", "kubelet\n")
			t.Put("proc/901/cmdline", "/usr/bin/kubelet\x00--config=/var/lib/kubelet/config.yaml\x00")
		}},
		{rule: "RT-028", about: "everybody reaches the socket", board: board.New, plant: func(t *board.Tree) {
			t.Own("var/lib/kubelet/pod-resources", "40777", 0, 0)
		}},
		{rule: "RT-028", about: "a copy that does not say who reaches the socket", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: "kubelet", Arguments: []string{"/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml", "--root-dir=/data"}})
			t.Put("data/pod-resources/kubelet.sock", "")
		}},
		{rule: "RT-028", about: "no file that can be read", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put("var/lib/kubelet/config.yaml", "{")
		}},
	})
}

func cleanupFaults() []fault {
	timeout := func(about, value string) fault {
		return containerdFault("RT-029", about, "[timeouts]\n'io.containerd.timeout.shim.cleanup' = "+value+"\n")
	}
	return []fault{
		timeout("too short", "'20s'"),
		timeout("no duration", "'soon'"),
		timeout("a number", "60"),
		{rule: "RT-029", about: "containerd's default", board: board.New, plant: func(t *board.Tree) {
			without, _, _ := strings.Cut(t.Fragment("containerd/kata-gpu.toml"), "[timeouts]")
			t.Put(board.ContainerdDropIn, without)
		}},
		{rule: "RT-029", about: "a file that containerd can't parse", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.AddToContainerd("[timeouts\n")
		}},
	}
}

func mountFaults() []fault {
	mount := func(about, source string) fault {
		return fault{rule: "RT-027", about: about, board: board.Server, plant: func(t *board.Tree) { t.Run("t1", source) }}
	}
	return []fault{
		mount("containerd's socket", "/run/containerd/containerd.sock"),
		mount("a directory above", "/var/lib/kubelet"),
		mount("the root", "/"),
		mount("the directory of the plugin's own socket", "/var/lib/kubelet/plugins/kata-vfio.dev"),
		mount("the socket that the kubelet calls the plugin by", "/var/lib/kubelet/plugins/kata-vfio.dev/dra.sock"),
		mount("the metadata of all claims", "/var/lib/kubelet/plugins/kata-vfio.dev/dra-device-metadata"),
		{rule: "RT-027", about: "the metadata of a claim's request", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			t.Run("t1", "/var/lib/kubelet/plugins/kata-vfio.dev/dra-device-metadata/team-a_gpu/gpu/metadata.json")
		}},
		mount("a plugin's registration", "/var/lib/kubelet/plugins_registry/kata-vfio.dev-reg.sock"),
		mount("the device plugins", "/var/lib/kubelet/device-plugins"),
		mount("the usual socket of Fabric Manager", "/run/kata-vfio-fabric"),
		{rule: "RT-027", about: "a socket of Fabric Manager at another path", board: board.Server, plant: func(t *board.Tree) {
			t.Put("usr/share/nvidia/nvswitch/fabricmanager.cfg", "FM_CMD_UNIX_SOCKET_PATH=/srv/fabric/api.sock\n")
			t.Run("t1", "/srv/fabric")
		}},
		{rule: "RT-027", about: "a plugin's registration with a kubelet that has another directory", board: board.Server, plant: func(t *board.Tree) {
			t.Start(board.Process{Comm: "kubelet", Arguments: []string{"/usr/bin/kubelet", "--root-dir=/data/kubelet"}})
			t.Run("t1", "/data/kubelet/plugins_registry")
		}},
		{rule: "RT-027", about: "a volume of the pod's own", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			t.Run("t1", "/var/lib/kubelet/pods/0000/volumes/kubernetes.io~empty-dir/plugins")
		}},
		{rule: "RT-027", about: "nothing to be seen", board: board.Server, state: finding.Unknown, plant: hideContainers},
		{rule: "RT-027", about: "a bundle that can't be read", board: board.Server, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put("run/containerd/io.containerd.runtime.v2.task/k8s.io/container-of-t1/config.json", "{")
		}},
	}
}

func handlerFaults() []fault {
	return []fault{
		containerdFault("RT-002", "a pattern", kataGPU+"pod_annotations = ['io.katacontainers.*']\n"),
		containerdFault("RT-003", "the prefix", kataGPU+"pod_annotations = ['cdi.k8s.io/*']\n"),
		containerdFault("RT-003", "every prefix", kataGPU+"pod_annotations = ['*/*']\n"),
		containerdFault("RT-003", "one key", kataGPU+"container_annotations = ['cdi.k8s.io/gpu']\n"),
		containerdFault("RT-003", "the shim sandboxer", kataGPU+"sandboxer = 'shim'\n"),
		{rule: "RT-003", about: "CRI-O", board: board.New, plant: crio},
		containerdFault("RT-005", "off", kataGPU+"privileged_without_host_devices = false\n"),
		containerdFault("RT-005", "all devices allowed", kataGPU+"privileged_without_host_devices_all_devices_allowed = true\n"),
		containerdFault("RT-025", "runc", kataGPU+"runtime_type = 'io.containerd.runc.v2'\nruntime_path = ''\n"),
		containerdFault("RT-025", "a path of another runtime", kataGPU+"runtime_path = '/usr/bin/containerd-shim-runc-v2'\n"),
		containerdFault("RT-025", "another handler", "[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata-qemu]\nruntime_type = 'io.containerd.runc.v2'\n"),
		{rule: "RT-025", about: "a file that containerd can't parse", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.AddToContainerd("[plugins\n")
		}},
		{rule: "RT-025", about: "an import that is not there", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.AddToContainerd("imports = ['elsewhere.toml']\n")
		}},
		{rule: "RT-026", about: "a file that containerd can't parse", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put(board.ContainerdConfig, "version = 3\nversion = 3\n")
		}},
		containerdFault("RT-037", "no CDI", "[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = false\n"),
		containerdFault("RT-037", "no CDI, by the plugin's old name", "[plugins.'io.containerd.grpc.v1.cri']\nenable_cdi = false\n"),
		containerdFault("RT-037", "no CRI", "disabled_plugins = ['cri']\n"),
		{rule: "RT-037", about: "a file that containerd can't parse", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.AddToContainerd("[plugins\n")
		}},
		containerdFault("RT-026", "NRI off", "[plugins.'io.containerd.nri.v1.nri']\ndisable = true\n"),
		containerdFault("RT-026", "NRI disabled as a plugin", "disabled_plugins = ['io.containerd.nri.v1.nri']\n"),
		containerdFault("RT-026", "no validator", "[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = false\n"),
		containerdFault("RT-026", "an excuse", "[plugins.'io.containerd.nri.v1.nri'.default_validator]\ntolerate_missing_plugins_annotation = 'x/y'\n"),
		{rule: "RT-026", about: "everybody's socket", board: board.New, plant: func(t *board.Tree) {
			t.Own("var/run/nri/nri.sock", "140777", 0, 0)
		}},
	}
}

// crio has CRI-O run Kata's Go runtime.
func crio(t *board.Tree) {
	t.Put("etc/crio/crio.conf.d/50-kata.conf", `[crio.runtime.runtimes.kata]
runtime_type = "vm"
runtime_path = "/opt/kata/bin/containerd-shim-kata-v2"
runtime_config_path = "/`+board.KataConfig+`"
privileged_without_host_devices = true
`)
	t.Own("etc/crio/crio.conf.d/50-kata.conf", "100644", 0, 0)
}

func kataFaults() []fault {
	return []fault{
		{rule: "RT-001", about: "kernel_params", board: board.New, plant: func(t *board.Tree) {
			t.AddToKata("[hypervisor.qemu]\nenable_annotations = ['kernel_params']\n")
			t.AddToContainerd(kataGPU + "pod_annotations = ['io.katacontainers.*']\n")
		}},
		kataFault("RT-004", "no setting", "[runtime]\npod_resource_api_sock = ''\n"),
		kataFault("RT-006", "on", "[agent.kata]\ndebug_console_enabled = true\n"),
		kataFault("RT-006", "by kernel_params", "[hypervisor.qemu]\nkernel_params = 'agent.debug_console'\n"),
		kataFault("RT-007", "qmp", "[hypervisor.qemu]\nenable_debug = true\nextra_monitor_socket = 'qmp'\n"),
		{rule: "RT-007", about: "by its other name", board: board.New, plant: func(t *board.Tree) {
			t.AddToContainerd(kataGPU + "runtime_path = '/opt/kata/runtime-rs/bin/containerd-shim-kata-v2'\n")
			t.AddToKata("[hypervisor.qemu]\nenable_debug = true\ndbg_monitor_socket = 'hmp'\n")
		}},
		kataFault("RT-008", "debug", "[runtime]\nenable_debug = true\n"),
		kataFault("RT-008", "a monitor that waits", "[hypervisor.qemu]\nextra_monitor_socket = 'hmp'\n"),
		kataFault("RT-009", "a pattern", "[hypervisor.qemu]\nvalid_hypervisor_paths = ['/usr/bin/*']\n"),
		kataFault("RT-010", "Kata's default", "[hypervisor.qemu]\nseccompsandbox = ''\n"),
		kataFault("RT-012", "off", "[hypervisor.qemu]\ndisable_selinux = true\n"),
		kataFault("RT-013", "Kata's default", "[runtime]\ndisable_guest_seccomp = true\n"),
		kataFault("RT-014", "hooks", "[hypervisor.qemu]\nguest_hook_path = '/usr/share/oci/hooks'\nkernel_verity_params = ''\n"),
		kataFault("RT-015", "a directory", "[hypervisor.qemu]\nguest_memory_dump_path = '/var/crash/kata'\n"),
		kataFault("RT-016", "off", "[runtime]\nsandbox_cgroup_only = false\n"),
		kataFault("RT-017", "hot plug", "[hypervisor.qemu]\ncold_plug_vfio = 'no-port'\nhot_plug_vfio = 'root-port'\n"),
		kataFault("RT-018", "vfio", "[runtime]\nvfio_mode = 'vfio'\n"),
		kataFault("RT-019", "no sandbox, one word", "[hypervisor.qemu]\nvirtio_fs_extra_args = ['--sandbox=none']\n"),
		kataFault("RT-019", "no filter, two words", "[hypervisor.qemu]\nvirtio_fs_extra_args = ['--seccomp', 'none']\n"),
		kataFault("RT-019", "a directory of the node", "[runtime]\nsandbox_bind_mounts = ['/etc']\n"),
		kataFault("RT-034", "Kata's arguments", "[hypervisor.qemu]\nvirtio_fs_extra_args = ['--thread-pool-size=1', '--announce-submounts']\n"),
		kataFault("RT-034", "the capability is given back", "[hypervisor.qemu]\nvirtio_fs_extra_args = ['--modcaps=-mknod:+mknod']\n"),
		kataFault("RT-035", "off", "[hypervisor.qemu]\ndisable_block_device_use = false\n"),
		{rule: "RT-035", about: "block devices only", board: board.New, state: finding.Pass, plant: func(t *board.Tree) {
			t.AddToKata("[hypervisor.qemu]\ndisable_block_device_use = false\nshared_fs = 'none'\n")
		}},
		kataFault("RT-020", "a template", "[factory]\nenable_template = true\n"),
		kataFault("RT-020", "a cache", "[factory]\nvm_cache_number = 3\n"),
		kataFault("RT-021", "on", "[hypervisor.qemu]\nenable_vhost_user_store = true\n"),
		kataFault("RT-022", "Kata's default", "[hypervisor.qemu]\nkernel_verity_params = ''\n"),
	}
}

// vmmFaults are processes that run, independent of the files on disk.
func vmmFaults() []fault {
	return []fault{
		{rule: "RT-007", about: "in a VMM that runs", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			qemu(t, "-qmp\x00unix:path=/run/vc/vm/sandbox-train/extra-monitor.sock,server=on,wait=off\x00")
		}},
		{rule: "RT-006", about: "in a VMM that runs", board: board.New, plant: func(t *board.Tree) {
			qemu(t, "-append\x00root=/dev/vda1 agent.debug_console agent.debug_console_vport=1026\x00")
		}},
		{rule: "RT-019", about: "in a daemon that runs", board: board.New, plant: func(t *board.Tree) {
			t.Put("proc/903/comm", "virtiofsd\n")
			t.Put("proc/903/cmdline", "/opt/kata/libexec/virtiofsd\x00--sandbox\x00none\x00")
		}},
		vmWithDisk("with a disk of the node", "/dev/sda", finding.Fail),
		vmWithDisk("with a disk by its name", "/dev/mapper/vg-lv", finding.Fail),
		vmWithDisk("with its volume", "/dev/dm-7", finding.Pass),
		vmWithDisk("without a disk", "/dev/null", finding.Pass),
		vmWithVolume("with a directly assigned volume that its pod mounts", "/volumes/data", `{"volume-type":"block","device":"/dev/mapper/vg-lv","fstype":"ext4"}`, finding.Pass),
		vmWithVolume("with a directly assigned volume of another pod", "/volumes/other", `{"volume-type":"block","device":"/dev/mapper/vg-lv"}`, finding.Fail),
		vmWithVolume("with another device than its volume has", "/volumes/data", `{"volume-type":"block","device":"/dev/sda"}`, finding.Fail),
		vmWithVolume("with a volume that names no device", "/volumes/data", `{"volume-type":"nfs","device":"server:/share"}`, finding.Fail),
		vmWithVolume("with a volume that can't be parsed", "/volumes/data", `{`, finding.Fail),
		virtiofsd("with all capabilities", "000001ffffffffff", finding.Fail),
		virtiofsd("with some", "00000000880000db", finding.Fail),
		virtiofsd("without CAP_MKNOD", "00000000800000db", finding.Pass),
		virtiofsd("that does not say", "", finding.Unknown),
	}
}

// vmWithDisk is a VM that has a file of the node open, of a pod that has a raw block volume.
func vmWithDisk(about, file string, state finding.State) fault {
	return fault{rule: "RT-036", about: "a VM " + about, board: board.New, state: state, plant: func(t *board.Tree) {
		qemu(t, "-device\x00vhost-user-fs-pci,chardev=c,tag=kataShared\x00")
		t.AskedContainerd(func(r *facts.RunningContainerd) {
			r.Containers = append(r.Containers, facts.Container{
				ID: "c1", Sandbox: board.SandboxID("t1-train-0000-4000-8000-000000000000"), Namespace: "t1", Pod: "train", BlockDevices: []string{"253:7"}, Mounts: []string{"/volumes/data"},
			})
		})
		for name, number := range map[string]string{"sda": "8:0", "dm-6": "253:6", "dm-7": "253:7"} {
			t.Put("sys/class/block/"+name+"/dev", number+"\n")
		}
		t.Symlink("dev/mapper/vg-lv", "../dm-6")
		t.Symlink("proc/902/fd/30", file)
	}}
}

// vmWithVolume is a VM that has a disk of the node open, on a node with a directly assigned volume. Its pod mounts
// /volumes/data.
func vmWithVolume(about, volume, mountInfo string, state finding.State) fault {
	f := vmWithDisk(about, "/dev/mapper/vg-lv", state)
	plant := f.plant
	f.plant = func(t *board.Tree) {
		plant(t)
		t.Put("run/kata-containers/shared/direct-volumes/"+base64.URLEncoding.EncodeToString([]byte(volume))+"/mountInfo.json", mountInfo)
		t.Put("run/kata-containers/shared/direct-volumes/not base64/mountInfo.json", "{")
	}
	return f
}

// virtiofsd is a daemon with capabilities, and its parent, which has all and only waits.
func virtiofsd(about, capabilities string, state finding.State) fault {
	return fault{rule: "RT-034", about: "a daemon " + about, board: board.New, state: state, plant: func(t *board.Tree) {
		for pid, status := range map[string]string{"903": "PPid:\t1\nCapEff:\t000001ffffffffff\n", "904": "PPid:\t903\nCapEff:\t" + capabilities + "\n"} {
			t.Put("proc/"+pid+"/comm", "virtiofsd\n")
			t.Put("proc/"+pid+"/cmdline", "/opt/kata/libexec/virtiofsd\x00--fd=3\x00--modcaps=-mknod\x00")
			t.Put("proc/"+pid+"/status", status)
		}
	}}
}

// qemu runs the VM of the tenant t1's sandbox.
func qemu(t *board.Tree, args string) {
	t.Put("proc/902/comm", "qemu-system-x86\n")
	t.Put("proc/902/cmdline", "/opt/kata/bin/qemu-system-x86_64\x00-name\x00sandbox-"+board.SandboxID("t1-train-0000-4000-8000-000000000000")+",debug-threads=on\x00"+args)
}

func ownerFaults() []fault {
	owner := func(about, name, mode string, uid, gid uint32) fault {
		return fault{rule: "RT-024", about: about, board: board.New, plant: func(t *board.Tree) { t.Own(name, mode, uid, gid) }}
	}
	return []fault{
		owner("a configuration that all may write", board.ContainerdConfig, "100666", 0, 0),
		owner("a drop-in of a group", board.KataDropIns+"/50-kata-gpu.toml", "100664", 0, 1000),
		owner("a user's shim", "opt/kata/bin/containerd-shim-kata-v2", "100755", 1000, 1000),
		owner("an image that all may write", "opt/kata/share/kata-containers/kata-containers-nvidia-gpu.img", "100646", 0, 0),
		owner("a directory above", "opt/kata", "40757", 0, 0),
		{rule: "RT-024", about: "a copy that does not say", board: board.New, state: finding.Unknown, plant: func(t *board.Tree) {
			t.Put("kata-vfio/stat.json", "{}")
		}},
	}
}

// sizeFaults are of the Rust runtime, which has two sizes.
func sizeFaults() []fault {
	rust := func(about, size string, state finding.State) fault {
		return fault{rule: "RT-030", about: about, board: board.Server, state: state, plant: func(t *board.Tree) {
			const dir = "opt/kata/share/defaults/kata-containers/runtime-rs/kata-gpu/"
			t.Put(board.ContainerdDropIn, t.Fragment("containerd/kata-gpu-runtime-rs.toml"))
			t.AskedContainerd(func(r *facts.RunningContainerd) {
				h := r.CRI.Handlers["kata-gpu"]
				h.Path, h.Config = "/opt/kata/runtime-rs/bin/containerd-shim-kata-v2", "/"+dir+"configuration.toml"
				r.CRI.Handlers["kata-gpu"] = h
			})
			t.Put(dir+"configuration.toml", strings.Replace(board.KataBase, "default_memory", "overhead_memory = 32\ndefault_memory", 1)+"hypervisor_name = 'qemu'\n")
			t.Put(dir+"config.d/50-kata-gpu.toml", t.Fragment("kata/50-kata-gpu-runtime-rs.toml"))
			t.Put(dir+"config.d/60-site.toml", size)
		}}
	}
	return []fault{
		rust("Kata's own size", "[hypervisor.qemu]\noverhead_memory = 32\n", ""),
		rust("more for all than for those with limits", "[hypervisor.qemu]\ndefault_memory = 16384\n", ""),
		rust("our drop-in", "", finding.Pass),
		rust("sizes that change while the VM runs", "[hypervisor.qemu]\noverhead_memory = 32\n[runtime]\nstatic_sandbox_resource_mgmt = false\n", finding.Pass),
	}
}

// A node that has nothing but what Kata ships for GPUs and what runtimeclass/ puts
// over it fails where Kata's own defaults are weak, and nowhere else.
func TestOurFragmentsOverKatasDefaults(t *testing.T) {
	for name, plant := range map[string]func(*board.Tree){
		"Go": func(*board.Tree) {},
		"Rust": func(t *board.Tree) {
			const dir = "opt/kata/share/defaults/kata-containers/runtime-rs/kata-gpu/"
			t.Put(board.ContainerdDropIn, t.Fragment("containerd/kata-gpu-runtime-rs.toml"))
			t.AskedContainerd(func(r *facts.RunningContainerd) {
				h := r.CRI.Handlers["kata-gpu"]
				h.Path, h.Config = "/opt/kata/runtime-rs/bin/containerd-shim-kata-v2", "/"+dir+"configuration.toml"
				r.CRI.Handlers["kata-gpu"] = h
			})
			base := strings.NewReplacer("seccompsandbox", "seccomp_sandbox", `"virtio-fs"`, `"none"`, `hot_plug_vfio = "no-port"`, "").Replace(board.KataBase)
			t.Put(dir+"configuration.toml", base+"hypervisor_name = 'qemu'\n")
			t.Put(dir+"config.d/50-kata-gpu.toml", t.Fragment("kata/50-kata-gpu-runtime-rs.toml"))
			for _, file := range []string{dir + "configuration.toml", dir + "config.d/50-kata-gpu.toml", "opt/kata/runtime-rs/bin/containerd-shim-kata-v2"} {
				t.Own(file, "100644", 0, 0)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			tree := board.New(t)
			tree.Delete(board.KataDropIns + "/60-site.toml")
			plant(tree)
			var failed []string
			for _, f := range audit(t, tree).Findings {
				if strings.HasPrefix(f.ID, "RT-") && f.State != finding.Pass && f.State != finding.NotApplicable {
					failed = append(failed, f.ID+" "+string(f.State))
				}
			}
			slices.Sort(failed)
			want := []string{"RT-010 fail", "RT-013 fail", "RT-022 fail"}
			if diff := cmp.Diff(want, failed); diff != "" {
				t.Errorf("what does not pass differs (-want +got):\n%s", diff)
			}
		})
	}
}

// The fragment for hot plug is a choice that the audit says what it costs of.
func TestHotPlugFragmentFailsOneRuleMore(t *testing.T) {
	tree := board.New(t)
	tree.Delete(board.KataDropIns + "/50-kata-gpu.toml")
	tree.Put(board.KataDropIns+"/50-kata-gpu-hotplug.toml", tree.Fragment("kata/50-kata-gpu-hotplug.toml"))
	tree.Own(board.KataDropIns+"/50-kata-gpu-hotplug.toml", "100644", 0, 0)
	for _, f := range audit(t, tree).Findings {
		if strings.HasPrefix(f.ID, "RT-") && f.State == finding.Fail && f.ID != "RT-017" {
			t.Errorf("%s fails: %s", f.ID, f.Text)
		}
	}
}

// What a file of the node says stands in findings as it is quoted: no byte of it
// moves a terminal's cursor.
func TestEvidenceFromFilesHasNoControlCharacters(t *testing.T) {
	tree := board.New(t)
	tree.AddToKata("[runtime]\nvfio_mode = \"\\u001b[2J\"\n[hypervisor.qemu]\nguest_memory_dump_path = \"a\\u001b]0;x\\u0007\"\n")
	for _, f := range audit(t, tree).Findings {
		if (f.ID == "RT-015" || f.ID == "RT-018") && strings.ContainsAny(f.Evidence[0].Value, "\x1b\x07") {
			t.Errorf("%s has the evidence %q", f.ID, f.Evidence[0].Value)
		}
	}
}

// kataHandler is the only handler of a board.
func kataHandler(t *testing.T, tree *board.Tree) finding.KataHandler {
	t.Helper()
	fsys, s := tree.Read()
	defer func() { _ = fsys.Close() }()
	handlers := check.DescribeKata(facts.New(fsys, s)).Handlers
	if len(handlers) != 1 {
		t.Fatalf("there are the handlers %+v", handlers)
	}
	return handlers[0]
}

// TestSettingsAreThoseThatKataReads: by what Kata itself has said of the same drop-ins.
func TestSettingsAreThoseThatKataReads(t *testing.T) {
	text, err := os.ReadFile("testdata/kata-env.json")
	if err != nil {
		t.Fatal(err)
	}
	var kata struct {
		Hypervisor struct {
			ColdPlugVFIO, HotPlugVFIO string
			PCIeRootPort              int64
			SecurityInfo              struct{ EnableAnnotations []string }
		}
		Runtime struct {
			Config            struct{ Path string }
			SandboxCgroupOnly bool
		}
	}
	if err := json.Unmarshal(text, &kata); err != nil {
		t.Fatal(err)
	}
	tree := board.Server(t)
	tree.AddToKata("[hypervisor.qemu]\npcie_root_port = 3\nenable_annotations = [\"kernel_params\"]\n[runtime]\nsandbox_cgroup_only = false\n")
	h := kataHandler(t, tree)
	want := h
	want.ColdPlug, want.HotPlug, want.RootPorts = kata.Hypervisor.ColdPlugVFIO, kata.Hypervisor.HotPlugVFIO, kata.Hypervisor.PCIeRootPort
	want.Annotations, want.InPodsCgroup = kata.Hypervisor.SecurityInfo.EnableAnnotations, kata.Runtime.SandboxCgroupOnly
	want.Config = kata.Runtime.Config.Path
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("the settings are others than Kata's (-Kata +audit):\n%s", diff)
	}
}

func TestSettingsThatNoFileSaysAreKatasDefaults(t *testing.T) {
	tree := board.Server(t)
	tree.Delete(board.KataDropIns)
	tree.Put(board.KataConfig, "[hypervisor.qemu]\npath = '/opt/kata/bin/qemu-system-x86_64'\n")
	h := kataHandler(t, tree)
	want := finding.KataHandler{
		Name: "kata-gpu", Engine: "containerd", Runtime: "go", Config: "/" + board.KataConfig, Files: []string{"/" + board.KataConfig}, VMM: "qemu",
		MemoryMiB: 2048, LimitedMiB: 2048, ColdPlug: "no-port", HotPlug: "no-port", Annotations: []string{},
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("the Go runtime's (-want +got):\n%s", diff)
	}
	tree.Put(board.ContainerdDropIn, tree.Fragment("containerd/kata-gpu-runtime-rs.toml"))
	rust := "/opt/kata/share/defaults/kata-containers/runtime-rs/kata-gpu/configuration.toml"
	tree.Put(rust[1:], "[hypervisor.qemu]\n[hypervisor.other]\n[runtime]\nhypervisor_name = 'qemu'\n")
	if h = kataHandler(t, tree); h.Runtime != "rust" || h.MemoryMiB != 128 || h.LimitedMiB != 0 || h.Config != rust || h.VMM != "qemu" {
		t.Errorf("the Rust runtime's are %+v", h)
	}
	tree.Put(rust[1:], "[")
	if h = kataHandler(t, tree); h.Damaged == "" {
		t.Errorf("settings that are not understood are %+v", h)
	}
}

func TestMoreRootPortsThanKataMakesAreItsMost(t *testing.T) {
	tree := board.Server(t)
	tree.AddToKata("[hypervisor.qemu]\npcie_root_port = 99\n")
	if h := kataHandler(t, tree); h.RootPorts != 16 {
		t.Errorf("it has %d root ports", h.RootPorts)
	}
}
