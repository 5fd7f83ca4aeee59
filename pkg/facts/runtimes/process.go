package runtimes

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// process is a running process, as /proc shows it.
type process struct {
	pid     int
	comm    string
	cmdline facts.Fact
	args    []string
	// doubt says why the process may not belong to the node; see [daemons].
	doubt facts.Fact
}

// option returns the value of a command line's option, the last one given:
// "--config x", "--config=x".
func (p *process) option(names ...string) (value string, ok bool) {
	return facts.Option(p.args, names...)
}

// processes returns the processes with one of the names. The kernel cuts names after 15 characters.
func processes(n *facts.Node, names ...string) []process {
	type key struct{}
	all := facts.Memo(n, key{}, func() map[string][]int { return byName(n) })
	var found []process
	for _, name := range names {
		for _, pid := range all[name] {
			n.Read(sysfs.Process(pid, "comm")) // the node keeps this file, because the answer depends on it
			cmdline := n.Read(sysfs.Process(pid, "cmdline"))
			args := sysfs.ParseArguments(cmdline.Value)
			cmdline.Value, cmdline.How = strings.Join(args, " "), "process"
			found = append(found, process{pid: pid, comm: name, cmdline: cmdline, args: args})
		}
	}
	return found
}

// byName returns the node's processes by their names. There may be thousands of them, so it opens only two files for each.
func byName(n *facts.Node) map[string][]int {
	found := map[string][]int{}
	proc, err := n.FS().OpenDir(sysfs.Proc)
	if err != nil {
		return found
	}
	defer proc.Close()
	names, err := proc.Names()
	if err != nil {
		return found
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if comm := readComm(proc, name); comm != "" {
			found[comm] = append(found[comm], pid)
		}
	}
	return found
}

// readComm returns a process' name; empty if it ended.
func readComm(proc *sysfs.Dir, pid string) string {
	dir, ok, err := proc.Sub(pid)
	if !ok || err != nil {
		return ""
	}
	defer dir.Close()
	comm, _, _ := dir.Text("comm") // without a readable name, the process is left out
	return comm
}

// daemons returns the processes with a name that belong to the node: those of root in the PID and mount namespaces of the node's
// first process. Any process, also in a pod or of another user, can set its name and command line, so all others are not trusted.
// doubtful are processes that can't be classified, each with the reason: their namespaces are unknown, or they see the node's
// processes but have their own mount namespace. Some distributions run the kubelet in this way, but a pod with hostPID looks the
// same. A process in another PID namespace is in a container, and is left out.
func daemons(n *facts.Node, name string) (own, doubtful []process) {
	for _, p := range processes(n, name) {
		user, pids, mounts := readUser(n, p.pid), namespaces(n, p.pid, "pid"), namespaces(n, p.pid, "mnt")
		switch {
		case user.OK() && user.Value != "0":
		case pids.differ():
		case !user.OK():
			doubtful = append(doubtful, p.doubted(user))
		case !pids.known():
			doubtful = append(doubtful, p.doubted(pids.missing()))
		case !mounts.known():
			doubtful = append(doubtful, p.doubted(mounts.missing()))
		case !mounts.same():
			f := mounts.of
			f.Status, f.Err = facts.Broken, fmt.Sprintf("process %d, %q, has its own mount namespace: it is unknown whether it belongs to the node", p.pid, p.cmdline.Value)
			doubtful = append(doubtful, p.doubted(f))
		default:
			own = append(own, p)
		}
	}
	return own, doubtful
}

// readUser returns the user who started a process (proc_pid_status(5)).
func readUser(n *facts.Node, pid int) facts.Fact {
	f := n.Read(sysfs.Process(pid, "status"))
	uids, _ := sysfs.StatusField(f.Value, "Uid")
	if fields := strings.Fields(uids); len(fields) > 0 {
		// The real UID: a program with the setuid bit changes the effective one, and keeps its caller's as the real one
		// (credentials(7)).
		f.Value = fields[0]
		return f
	}
	if f.Status == facts.Present || f.Status == facts.Absent {
		f.Status, f.Err, f.Value = facts.Broken, "it does not say whose process it is", ""
	}
	return f
}

// namespace is a namespace of a process, and the one of the node's first process, of the same kind.
type namespace struct{ of, first facts.Fact }

func namespaces(n *facts.Node, pid int, kind string) namespace {
	return namespace{n.Link(sysfs.Process(pid, "ns", kind)), n.Link(sysfs.Process(1, "ns", kind))}
}

func (s namespace) known() bool { return s.of.OK() && s.first.OK() }

func (s namespace) same() bool { return s.of.Value == s.first.Value }

// differ reports whether the process is known to have another namespace than the node's first process.
func (s namespace) differ() bool { return s.known() && !s.same() }

// inContainer reports whether a process is known to be in another PID namespace than the node's first process. Such a process can have
// any name and command line.
func inContainer(n *facts.Node, pid int) bool { return namespaces(n, pid, "pid").differ() }

// missing returns the fact of the namespace that is not known, with the reason: the copy of the node does not contain it, or the
// reader lacks the privilege.
func (s namespace) missing() facts.Fact {
	f := s.of
	if !s.first.OK() {
		f = s.first
	}
	if f.Status == facts.Absent {
		f.Status, f.Err = facts.Broken, "it does not exist, so the node's own processes can't be distinguished from those of containers"
	}
	return f
}

// doubted returns the process with the reason why it is doubtful.
func (p process) doubted(why facts.Fact) process {
	p.doubt = why
	return p
}

// doubts returns the reasons why the processes are doubtful.
func doubts(of []process) []facts.Fact {
	var all []facts.Fact
	for _, p := range of {
		all = append(all, p.doubt)
	}
	return all
}
