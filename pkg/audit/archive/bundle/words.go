package bundle

import (
	"bytes"
	"path"
	"regexp"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
)

// vocabulary are words by which the node and its checks are described. Where a tenant has one
// of them as a name, on purpose or not, it can't be replaced wherever it stands.
const vocabulary = `
	kata-vfio.dev gpu.kata-vfio.dev vf.kata-vfio.dev pf.kata-vfio.dev resource.kata-vfio.dev/v1alpha1 vfio.kata-vfio.dev
	kata-vfio-plugin kata-vfio-audit kata-vfio-bootstrap kata-vfio-guestnet kata-vfio-system kata-gpu kata-containers
	var/lib/kata-vfio/journal/unclean var/lib/kata-vfio/journal/drained var/lib/kata-vfio/ledger run/kata-vfio etc/kata-vfio
	json toml yaml conf jsonl ndjson txt log tgz pub
	true false null none yes no on off auto always never default enabled disabled required optional
	pass fail unknown error waived not-applicable critical high medium low info
	prepare unprepare prepared preparing unpreparing quarantined quarantine ready isolated reset refused ok failed claim pod node device
	gpu vf pf nic pair bound ondemand vfio-pci vfio-user vfio-ap vfio-ccw iommufd cdev legacy group
	flr bus pm af-level slot device-specific acpi d3cold
	containerd crio cri-o cri kubelet qemu qemu-system-x86 qemu-system-aarch64 cloud-hypervisor firecracker dragonball virtiofsd runc
	io.containerd.kata.v2 io.containerd.runc.v2 io.containerd.kata-qemu.v2 io.containerd.grpc.v1.cri io.containerd.nri.v1.nri
	kata qemu-nvidia-gpu root-port switch-port bridge-port no-port vfio guest-kernel cold-plug hot-plug nri cdi plugins runtimes options
	webhook x509 anonymous alwaysallow rbac authentication authorization
	iommu intel amd smmu dmar acs ats pri pasid vfio-iommu-type1 kubepods kubepods.slice system.slice cgroup
	proc sys dev etc usr lib boot run var opt bin sbin share root home tmp mnt
`

// Reserve has the mask leave alone the names that stand in a text which can have none: where
// such a text and a tenant have the same word, to replace it would make the text another one.
// These names are replaced by [Mask.Fields] only. All names are to be hidden before.
func (m *Mask) Reserve(text []byte) {
	if m == nil || len(m.names) == 0 {
		return
	}
	for i := range text {
		if !isWord(text[i]) || !begins(text, i) {
			continue
		}
		for n := runOf(text[i:]); n > 0; n-- {
			if end := i + n; isWord(text[end-1]) && (end == len(text) || !isWord(text[end])) && m.names[string(text[i:end])] != "" {
				m.reserved[string(text[i:end])] = true
			}
		}
	}
}

// Reserved counts the names that are replaced in fields only.
func (m *Mask) Reserved() int {
	if m == nil {
		return 0
	}
	return len(m.reserved)
}

// ReserveNode reserves the words of a node's archive that its checks rest on: our own and our
// patterns', names, links and contents of what the kernel shows, flags of processes, and keys of
// configurations. What processes and configurations say beside that may be tenants' names.
func (m *Mask) ReserveNode(r *archive.Recorder) {
	if m == nil || len(m.names) == 0 {
		return
	}
	m.reserveOwn()
	r.Each(func(place, target string, names []string, data []byte) {
		switch {
		case isKernels(place):
			m.Reserve([]byte(place + "\n" + target + "\n" + strings.Join(names, "\n")))
			m.Reserve(data)
		case strings.HasPrefix(place, "proc/"): // of a process
			m.Reserve([]byte(place + "\n" + kernelsTarget(target) + "\n" + strings.Join(names, "\n")))
			m.Reserve(wordsOfProcess(path.Base(place), data))
		case path.Ext(place) == ".json":
			m.reserveKeys(data)
		default:
			m.Reserve(bytes.Join(settings.FindAll(data, -1), []byte("\n")))
		}
	})
}

// reserveOwn reserves the words that are the same for every node.
func (m *Mask) reserveOwn() {
	m.Reserve([]byte(vocabulary))
	m.Reserve([]byte(strings.Join(archive.Patterns(), "\n")))
}

// isKernels reports whether a file is the kernel's, and no process's.
func isKernels(place string) bool {
	top, rest, _ := strings.Cut(place, "/")
	switch top {
	case "sys", "dev", "boot":
		return true
	case "proc":
		first, _, _ := strings.Cut(rest, "/")
		return rest == "" || first != "self" && strings.Trim(first, "0123456789") != ""
	}
	return false
}

// kernelsTarget is where a link of a process leads, if that is to a device.
func kernelsTarget(target string) string {
	if strings.HasPrefix(target, "/dev/") || strings.HasPrefix(target, "/sys/") || !strings.HasPrefix(target, "/") {
		return target
	}
	return ""
}

var (
	// flag is one of a command line.
	flag = regexp.MustCompile(`(?:^|\x00)-{1,2}[A-Za-z][\w.-]*`)
	// settings are the keys of a configuration, and the titles of its tables but for what
	// is quoted in them.
	settings = regexp.MustCompile(`(?m)^[ \t]*(?:- )?["']?[\w.-]+["']?[ \t]*[:=]|^[ \t]*\[+[\w.-]+`)
)

// wordsOfProcess returns what of a process's file is not its own choice.
func wordsOfProcess(file string, data []byte) []byte {
	switch file {
	case "comm", "status", "limits", "stat", "maps":
		return data
	case "cmdline":
		return bytes.Join(flag.FindAll(data, -1), []byte("\n"))
	}
	return nil
}
