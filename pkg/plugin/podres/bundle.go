package podres

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

const (
	defaultProc  = "/proc"
	defaultTasks = "/run/containerd/io.containerd.runtime.v2.task"
	// defaultNamespace is containerd's namespace of all Kubernetes sandboxes.
	defaultNamespace = "k8s.io"
	// maxFile is far above any config.json: the largest hold some hundred mounts.
	maxFile = 4 << 20
)

// Bundles find a shim's sandbox by its OCI bundle: containerd and CRI-O start
// shims in their bundle's directory, and name it in the arguments.
type Bundles struct {
	// Proc is the proc filesystem of the node's PID namespace; /proc when empty.
	// Its magic links are followed: a shim's files are reached as it sees them.
	Proc string
	// Tasks is containerd's directory of bundles, by namespace and id; where
	// containerd has it when empty.
	Tasks string
}

// Sandbox returns the sandbox of the shim with the PID. Where there is no
// bundle to be read it says so in Unknown and knows nothing else. A bundle that
// can be read and names no pod is an error.
func (b Bundles) Sandbox(pid int) (PeerSandbox, error) {
	shim, gone := b.process(pid)
	if gone != nil {
		return PeerSandbox{Unknown: fmt.Errorf("no OCI bundle: %w", gone)}, nil
	}
	config, unreadable := b.config(pid)
	if unreadable != nil {
		return PeerSandbox{Unknown: unreadable}, nil
	}
	sandbox, err := parseSandbox(config)
	if err != nil {
		return PeerSandbox{}, fmt.Errorf("OCI bundle of process %d: %w", pid, err)
	}
	// What was read is of the process whose time is kept, and not of a later one.
	if now, err := b.process(pid); err != nil || now != shim {
		return PeerSandbox{}, fmt.Errorf("OCI bundle of process %d: the process has ended", pid)
	}
	sandbox.NetNS, sandbox.Shim = config.netNS(), shim
	return sandbox, nil
}

// process returns the process with the PID now.
func (b Bundles) process(pid int) (journal.Process, error) {
	stat, err := readFile(b.file(pid, "stat"))
	if err != nil {
		return journal.Process{}, err
	}
	start, err := sysfs.ParseStartTime(string(stat))
	return journal.Process{PID: pid, StartTime: start}, err
}

// config returns that of the shim's bundle.
func (b Bundles) config(pid int) (*ociConfig, error) {
	here, err := b.configHere(pid)
	if err == nil {
		return here, nil
	}
	path, argErr := b.bundleByID(pid)
	if argErr != nil {
		return nil, fmt.Errorf("no OCI bundle: %w", errors.Join(err, argErr))
	}
	named, namedErr := readConfig(path)
	if namedErr != nil {
		return nil, fmt.Errorf("no OCI bundle: %w", errors.Join(err, namedErr))
	}
	named.dir = filepath.Dir(path)
	return named, nil
}

// configHere returns that of the bundle in which the shim works.
func (b Bundles) configHere(pid int) (*ociConfig, error) {
	cwd := b.file(pid, "cwd")
	config, err := readConfig(filepath.Join(cwd, "config.json"))
	if err != nil {
		return nil, err
	}
	config.dir, err = os.Readlink(cwd)
	return config, err
}

// bundleByID returns the config.json of the bundle that the shim's arguments
// name, as the shim sees it.
func (b Bundles) bundleByID(pid int) (string, error) {
	data, err := readFile(b.file(pid, "cmdline"))
	if err != nil {
		return "", err
	}
	args := strings.Split(string(data), "\x00")
	id, namespace := flagValue(args, "id"), flagValue(args, "namespace")
	if namespace == "" {
		namespace = defaultNamespace
	}
	if id == "" || filepath.Base(id) != id || filepath.Base(namespace) != namespace {
		return "", fmt.Errorf("the arguments of process %d name no sandbox", pid)
	}
	tasks := b.Tasks
	if tasks == "" {
		tasks = defaultTasks
	}
	return b.file(pid, "root", tasks, namespace, id, "config.json"), nil
}

// flagValue returns the value of a flag: "-id x", "-id=x", or with two dashes.
func flagValue(args []string, name string) string {
	for i, arg := range args {
		flag, dashed := strings.CutPrefix(arg, "-")
		if !dashed {
			continue
		}
		flag, value, joined := strings.Cut(strings.TrimPrefix(flag, "-"), "=")
		switch {
		case flag != name:
		case joined:
			return value
		case i+1 < len(args):
			return args[i+1]
		}
	}
	return ""
}

func (b Bundles) file(pid int, elements ...string) string {
	proc := b.Proc
	if proc == "" {
		proc = defaultProc
	}
	return filepath.Join(append([]string{proc, strconv.Itoa(pid)}, elements...)...)
}

// ociConfig is what we read of a bundle's config.json (OCI runtime
// specification, config.md and config-linux.md).
type ociConfig struct {
	Annotations map[string]string `json:"annotations"`
	Linux       struct {
		Namespaces []struct {
			Type string `json:"type"`
			Path string `json:"path"`
		} `json:"namespaces"`
	} `json:"linux"`

	// dir is the bundle's directory.
	dir string
}

// id returns the sandbox's id by the bundle's directory, which the runtime chooses and a
// pod can't: containerd has <tasks>/<namespace>/<id>, CRI-O
// <storage>/overlay-containers/<id>/userdata.
func (c *ociConfig) id() string {
	if filepath.Base(c.dir) == "userdata" {
		return filepath.Base(filepath.Dir(c.dir))
	}
	return filepath.Base(c.dir)
}

// netNS returns the path of the network namespace; empty where the sandbox has
// none of its own, or none that was made before it.
func (c *ociConfig) netNS() string {
	for _, n := range c.Linux.Namespaces {
		if n.Type == "network" {
			return n.Path
		}
	}
	return ""
}

func readConfig(path string) (*ociConfig, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	config := &ociConfig{}
	if err := json.Unmarshal(data, config); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return config, nil
}

// readFile returns a regular file of bounded size; nothing else is waited for,
// since the path is another process' word.
func readFile(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	data, err := readRegular(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

func readRegular(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("not a file (%s)", info.Mode())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("larger than %d bytes", maxFile)
	}
	return data, err
}

// PeerSandbox is the sandbox that a shim is starting.
type PeerSandbox struct {
	// ID is the runtime's id of the sandbox, empty where its bundle can't be
	// read.
	ID string
	// PodNamespace, PodName and PodUID are the pod as the runtime knows it from
	// the kubelet; empty where the bundle does not tell.
	PodNamespace, PodName, PodUID string
	// NetNS is the pod's network namespace as a path of the node; empty for a pod
	// in the node's own.
	NetNS string
	// Shim is the process that starts it.
	Shim journal.Process
	// Unknown says why PodUID is empty; nil when it is not.
	Unknown error
}

// forJournal returns what the claims' records keep of the sandbox.
func (s *PeerSandbox) forJournal() journal.Sandbox {
	return journal.Sandbox{ID: s.ID, PodUID: s.PodUID, NetNS: s.NetNS, Shim: s.Shim}
}

// Keys of an OCI bundle's annotations. Those of containerd are its own words: it
// writes them over whatever a pod's annotations said. CRI-O writes a pod's
// annotations over its own, and the kubelet's labels over those, so that there
// only the labels can be relied on for the pod, and only the bundle's directory for the
// sandbox's id.
const (
	containerdID        = "io.kubernetes.cri.sandbox-id"
	containerdNamespace = "io.kubernetes.cri.sandbox-namespace"
	containerdName      = "io.kubernetes.cri.sandbox-name"
	containerdUID       = "io.kubernetes.cri.sandbox-uid"

	crioID         = "io.kubernetes.cri-o.SandboxID"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelName      = "io.kubernetes.pod.name"
	labelUID       = "io.kubernetes.pod.uid"
)

// errNoUID says that the runtime does not tell a pod's UID.
var errNoUID = errors.New("the sandbox's bundle has no " + containerdUID)

// parseSandbox returns the sandbox that a bundle's directory and annotations name. Ones that
// name no pod, or speak for two runtimes, are an error: on CRI-O a pod's own
// annotations are among them, and Kata takes the pod's name from containerd's
// keys before it looks at CRI-O's.
func parseSandbox(config *ociConfig) (PeerSandbox, error) {
	annotations := config.Annotations
	_, containerd := annotations[containerdID]
	_, crio := annotations[crioID]
	var s PeerSandbox
	switch {
	case containerd && crio:
		return s, fmt.Errorf("annotations %s and %s contradict each other: one is the pod's own", containerdID, crioID)
	case containerd:
		s = PeerSandbox{
			ID: annotations[containerdID], PodUID: annotations[containerdUID],
			PodNamespace: annotations[containerdNamespace], PodName: annotations[containerdName],
		}
	case crio:
		s = PeerSandbox{
			ID: config.id(), PodUID: annotations[labelUID],
			PodNamespace: annotations[labelNamespace], PodName: annotations[labelName],
		}
	}
	if s.ID == "" || s.PodNamespace == "" || s.PodName == "" {
		return s, errors.New("the annotations name no pod sandbox")
	}
	if dir := config.id(); s.ID != dir {
		return s, fmt.Errorf("the annotations name sandbox %s, and the directory is that of %s", s.ID, dir)
	}
	if s.PodUID == "" {
		s.Unknown = errNoUID
	}
	return s, nil
}
