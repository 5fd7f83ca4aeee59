package runtimes

import (
	"path"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts"
	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
)

// process is one that runs, by /proc.
type process struct {
	pid     int
	comm    string
	cmdline facts.Fact
	args    []string
	// doubt says why it may not be the node's own; see [daemons].
	doubt facts.Fact
}

// option returns the value of a command line's option, the last one given:
// "--config x", "--config=x".
func (p *process) option(names ...string) (value string, ok bool) {
	return config.Option(p.args, names...)
}

// processes returns those with one of the names, which the kernel cuts after 15
// characters.
func processes(n *facts.Node, names ...string) []process {
	type key struct{}
	all := facts.Memo(n, key{}, func() map[string][]int { return byName(n) })
	var found []process
	for _, name := range names {
		for _, pid := range all[name] {
			n.Read(path.Join("proc", strconv.Itoa(pid), "comm")) // kept, as what the answer rests on
			cmdline := n.Read(path.Join("proc", strconv.Itoa(pid), "cmdline"))
			args := strings.Split(strings.TrimRight(cmdline.Value, "\x00"), "\x00")
			cmdline.Value, cmdline.How = strings.Join(args, " "), "process"
			found = append(found, process{pid: pid, comm: name, cmdline: cmdline, args: args})
		}
	}
	return found
}

// byName returns the node's processes by their names. There may be thousands: each
// takes two opens this way.
func byName(n *facts.Node) map[string][]int {
	found := map[string][]int{}
	proc, err := n.FS().OpenDir("proc")
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
		if comm := commOf(proc, name); comm != "" {
			found[comm] = append(found[comm], pid)
		}
	}
	return found
}

// commOf returns a process' name; empty where it ended.
func commOf(proc *sysfs.Dir, pid string) string {
	dir, ok, err := proc.Sub(pid)
	if !ok || err != nil {
		return ""
	}
	defer dir.Close()
	comm, _, _ := dir.Text("comm") // absent or denied: no name to go by
	return comm
}
