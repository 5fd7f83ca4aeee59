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

// Bundles finds a shim's sandbox by its OCI bundle. containerd and CRI-O start shims in the bundle's
// directory, and name the sandbox in the arguments.
type Bundles struct {
	// Proc is the proc filesystem of the node's PID namespace; empty means /proc. Its magic links are
	// followed, so that a shim's files are read as the shim sees them.
	Proc string
	// Tasks is containerd's directory of bundles, by namespace and ID; empty means containerd's default.
	Tasks string
}

// Sandbox returns the sandbox of the shim with the PID. If no bundle can be read, it sets only Unknown. A bundle that names no pod is an
// error.
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
	// The bundle must belong to the process whose start time is kept, and not to a later process with the same PID.
	now, err := b.process(pid)
	if err != nil {
		return PeerSandbox{}, fmt.Errorf("OCI bundle of process %d: the process has ended, or can't be read: %w", pid, err)
	}
	if now != shim {
		return PeerSandbox{}, fmt.Errorf("OCI bundle of process %d: the process has ended, and another one has its PID", pid)
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

// config returns the config of the shim's bundle.
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

// configHere returns the config of the bundle in the shim's working directory.
func (b Bundles) configHere(pid int) (*ociConfig, error) {
	cwd := b.file(pid, "cwd")
	config, err := readConfig(filepath.Join(cwd, "config.json"))
	if err != nil {
		return nil, err
	}
	config.dir, err = os.Readlink(cwd)
	return config, err
}

// bundleByID returns the path of config.json in the bundle that the shim's arguments name, as the shim sees it.
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
	// A process can have any arguments: these must not lead out of the runtime's directory.
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

// ociConfig is the part of a bundle's config.json that we read (OCI runtime specification, config.md and
// config-linux.md).
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

// id returns the sandbox's ID from the bundle's directory, which the runtime chooses and a pod can't:
// <tasks>/<namespace>/<id> with containerd, <storage>/overlay-containers/<id>/userdata with CRI-O.
func (c *ociConfig) id() string {
	if filepath.Base(c.dir) == "userdata" {
		return filepath.Base(filepath.Dir(c.dir))
	}
	return filepath.Base(c.dir)
}

// netNS returns the path of the network namespace; empty if the sandbox does not have its own, or if it did not exist
// before the sandbox.
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

// readFile returns a regular file of bounded size. It never blocks, because another process chose the
// path.
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
		return nil, fmt.Errorf("not a regular file (%s)", info.Mode())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("larger than %d bytes", maxFile)
	}
	return data, err
}

// PeerSandbox is the sandbox that a shim is starting.
type PeerSandbox struct {
	// ID is the runtime's ID of the sandbox; empty if its bundle can't be read.
	ID string
	// PodNamespace, PodName and PodUID identify the pod, as the kubelet passed them to the runtime; empty
	// if the bundle does not have them.
	PodNamespace, PodName, PodUID string
	// NetNS is the path of the pod's network namespace on the node; empty for a pod in the node's own.
	NetNS string
	// Shim is the process that starts it.
	Shim journal.Process
	// Unknown says why PodUID is empty; nil when it is not.
	Unknown error
}

// forJournal returns the sandbox for the claims' records.
func (s *PeerSandbox) forJournal() journal.Sandbox {
	return journal.Sandbox{ID: s.ID, PodUID: s.PodUID, NetNS: s.NetNS, Shim: s.Shim}
}

// Keys of an OCI bundle's annotations. containerd overwrites a pod's annotations with its own. CRI-O overwrites its own annotations with
// the pod's, and these with the kubelet's labels. So with CRI-O only the labels identify the pod, and only the bundle's directory
// identifies the sandbox.
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

// errNoUID says that the runtime did not set the pod's UID.
var errNoUID = errors.New("the sandbox's bundle has no " + containerdUID)

// parseSandbox returns the sandbox that a bundle's directory and annotations name. Annotations that name
// no pod, or have the keys of both runtimes, are an error: with CRI-O they include the pod's own, and Kata
// reads containerd's keys first.
func parseSandbox(config *ociConfig) (PeerSandbox, error) {
	annotations := config.Annotations
	_, containerd := annotations[containerdID]
	_, crio := annotations[crioID]
	var s PeerSandbox
	switch {
	case containerd && crio:
		return s, fmt.Errorf("annotations %s and %s contradict each other: the pod set one of them", containerdID, crioID)
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
		return s, fmt.Errorf("the annotations name sandbox %s, and the directory belongs to sandbox %s", s.ID, dir)
	}
	if s.PodUID == "" {
		s.Unknown = errNoUID
	}
	return s, nil
}
