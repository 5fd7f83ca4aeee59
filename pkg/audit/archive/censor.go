package archive

import (
	"bytes"
	"encoding/json"
	"path"
	"slices"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// censor removes data that must not leave the node, and that no check needs: processes unrelated to devices, the other
// files of related ones, the environment of containers, and passwords in configurations. Callers hold mu.
func (r *Recorder) censor() {
	for pid, places := range r.processes() {
		r.censorProcess(pid, places)
	}
	for place, e := range r.entries {
		if e.read && isBundle(place) {
			e.data = censorBundle(e.data)
		}
		if e.read && isKataState(place) {
			e.data = censorKataState(e.data)
		}
		switch {
		case e.read && place == "proc/iomem": // the other lines show where the kernel is in memory
			e.data = []byte(device.ExcerptFrameBuffers(string(e.data)))
		case !e.read || !mayHaveSecrets(place):
		case path.Ext(place) == ".json":
			e.data = output.ScrubJSON(e.data)
		default:
			e.data = output.Scrub(e.data)
		}
	}
}

// mayHaveSecrets reports whether people or programs write the file, as they do configurations and command lines. Kernel files about
// devices have no secrets. kata-vfio's own records are not changed, because they would no longer verify.
func mayHaveSecrets(place string) bool {
	if strings.HasPrefix(place, "var/lib/kata-vfio/") {
		return false
	}
	top, _, _ := strings.Cut(place, "/")
	return !slices.Contains([]string{"sys", "dev", "boot"}, top)
}

// processes returns the recorded files of each process, by its number.
func (r *Recorder) processes() map[string][]string {
	found := map[string][]string{}
	for place := range r.entries {
		rest, ok := strings.CutPrefix(place, "proc/")
		pid, _, _ := strings.Cut(rest, "/")
		if _, err := strconv.Atoi(pid); ok && err == nil {
			found[pid] = append(found[pid], place)
		}
	}
	return found
}

func (r *Recorder) censorProcess(pid string, places []string) {
	// Process 1 has the node's own namespaces, with which the namespaces of other processes are compared.
	keep := pid == "1" || r.isDaemon("proc/"+pid)
	for _, place := range places {
		keep = keep || r.entries[place].concerns()
	}
	for _, place := range places {
		if !keep || slices.Contains([]string{"environ", "auxv"}, path.Base(place)) {
			delete(r.entries, place)
			continue
		}
		r.entries[place].blacken(place)
	}
	if list := r.entries["proc"]; list != nil && !keep {
		list.names = slices.DeleteFunc(list.names, func(name string) bool { return name == pid })
	}
}

// isDaemon reports whether the command line of a process shows the settings of the node's runtimes.
func (r *Recorder) isDaemon(dir string) bool {
	comm := r.entries[dir+"/comm"]
	return comm != nil && slices.Contains([]string{
		"kubelet", "containerd", "crio", "virtiofsd", "qemu-system-x86", "qemu-system-aar", "cloud-hyperviso", "firecracker",
	}, strings.TrimSpace(string(comm.data)))
}

// concerns reports whether a file of a process shows that the process uses devices, or could not be read, so that the process may use some.
func (e *entry) concerns() bool {
	for _, err := range e.failed {
		if failure("", 0, err).Errno != 2 { // ENOENT: the process ended, or has no such file
			return true
		}
	}
	// The words are in the links of /proc/PID/fd, such as anon_inode:kvm-vm, and in the lines of maps.
	for _, word := range []string{"vfio", "/dev/iommu", "kvm-vm", "/sys/bus/pci", "/sys/devices/pci"} {
		if strings.Contains(e.target, word) || bytes.Contains(e.data, []byte(word)) {
			return true
		}
	}
	return false
}

// blacken hides the files other than devices that a process has open or mapped. It hides also the paths that are too long for
// readers, since a tenant chooses them, and the names of devices are short.
func (e *entry) blacken(place string) {
	if e.link && (len(e.target) > maxPath || path.Base(path.Dir(place)) == "fd" && !showable(e.target)) {
		e.target = "(not collected)"
	}
	if e.read && path.Base(place) == "maps" {
		var kept []string
		for line := range strings.Lines(string(e.data)) {
			if fields := strings.Fields(line); len(fields) > 5 && showable(fields[5]) {
				kept = append(kept, line)
			}
		}
		e.data = []byte(strings.Join(kept, ""))
	}
}

func showable(target string) bool {
	for _, prefix := range []string{"/dev/", "/sys/", "anon_inode:"} {
		if strings.HasPrefix(target, prefix) {
			return true
		}
	}
	return false
}

// isBundle reports whether a file is a container's configuration from containerd: it has the container's
// environment and command line.
func isBundle(place string) bool {
	return path.Base(place) == "config.json" && strings.Contains(place, "containerd/io.containerd.runtime.v2.task/")
}

// bundle is the part of a container's configuration that checks judge: the container's owner, its mounts and device nodes, and
// whether it is privileged. It has the fields that [facts.DescribeContainer] reads, except Kata's initial data.
type bundle struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Mounts      []mount           `json:"mounts,omitempty"`
	Process     struct {
		Capabilities struct {
			Bounding []string `json:"bounding,omitempty"`
		} `json:"capabilities"`
	} `json:"process"`
	Linux struct {
		Devices []struct {
			Path  string `json:"path"`
			Type  string `json:"type,omitempty"`
			Major int64  `json:"major,omitempty"`
			Minor int64  `json:"minor,omitempty"`
		} `json:"devices,omitempty"`
		Resources struct {
			Devices []specs.LinuxDeviceCgroup `json:"devices,omitempty"`
		} `json:"resources"`
	} `json:"linux"`
}

type mount struct {
	Source string `json:"source"`
}

// censorBundle returns only the fields of [bundle]. A file that can't be parsed is replaced by one that can't be parsed either.
func censorBundle(data []byte) []byte {
	var b bundle
	if err := json.Unmarshal(data, &b); err != nil {
		return []byte("(not collected)")
	}
	owner := []string{"io.kubernetes.cri.sandbox-id", "io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.sandbox-name"}
	for name := range b.Annotations {
		if !slices.Contains(owner, name) {
			delete(b.Annotations, name)
		}
	}
	kept, err := json.Marshal(b)
	if err != nil {
		return []byte("(not collected)")
	}
	return kept
}

// isKataState reports whether a file is Kata's state of a sandbox or of a directly assigned volume. Such a file has
// annotations of the pod and Kata's whole configuration, or a storage driver's data for the guest.
func isKataState(place string) bool {
	dir := path.Dir(path.Dir(place))
	return dir == "run/kata-containers/shared/direct-volumes" && path.Base(place) == "mountInfo.json" || dir == "run/vc/sbs" && path.Base(place) == "persist.json" || dir == "run/kata" && path.Base(place) == "state.json"
}

// censorKataState keeps the judged part: the VM that runs, and its functions. An unreadable file stays unreadable.
func censorKataState(data []byte) []byte {
	var state map[string]json.RawMessage
	if err := json.Unmarshal(data, &state); err != nil {
		return []byte("(not collected)")
	}
	judged := []string{
		"SandboxContainer", "PersistVersion", "State", "Devices", "HypervisorState", "Network", // virtcontainers/persist/api
		"sandbox_type", "resource", "hypervisor", // runtime-rs
		"volume-type", "device", // pkg/direct-volume
	}
	for name := range state {
		if !slices.Contains(judged, name) {
			delete(state, name)
		}
	}
	var hypervisor map[string]json.RawMessage
	if json.Unmarshal(state["hypervisor"], &hypervisor) == nil && hypervisor != nil {
		delete(hypervisor, "config")
		if kept, err := json.Marshal(hypervisor); err == nil {
			state["hypervisor"] = kept
		}
	}
	kept, err := json.Marshal(state)
	if err != nil {
		return []byte("(not collected)")
	}
	return kept
}
