package containers

import (
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/runtimeclass"
)

// unit is a systemd service, as its files define it.
type unit struct {
	// files are the unit, its drop-ins and its environment files, in the order of precedence.
	files []string
	// start is the last ExecStart, unparsed.
	start       string
	environment map[string]string
}

// unitDirs are the directories in which systemd looks for units (systemd.unit(5)), in the order of precedence.
func unitDirs() []string {
	return []string{
		"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system",
	}
}

// unit returns a service with its drop-ins, except the given ones. It returns false if the service does not exist or is
// masked.
func (n node) unit(service string, without ...string) (*unit, bool) {
	u := &unit{environment: map[string]string{}}
	for _, dir := range unitDirs() {
		if n.target(path.Join(dir, service)) == "/dev/null" {
			return nil, false
		}
		if file := n.Read(path.Join(dir, service)); file.OK() {
			u.add(n, file.Path, file.Value)
			break
		}
	}
	if len(u.files) == 0 {
		return nil, false
	}
	for _, file := range n.dropIns(service) {
		if text := n.Read(file); text.OK() && !slices.Contains(without, file) {
			u.add(n, file, text.Value)
		}
	}
	return u, true
}

// dropIns returns a service's drop-ins by name. Of several with one name, the first directory's is used.
func (n node) dropIns(service string) []string {
	byName := map[string]string{}
	var names []string
	for _, dir := range unitDirs() {
		in, _ := n.list(path.Join(dir, service+".d"))
		for _, name := range in {
			if _, has := byName[name]; !has && path.Ext(name) == ".conf" {
				byName[name] = path.Join(dir, service+".d", name)
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	var files []string
	for _, name := range names {
		files = append(files, byName[name])
	}
	return files
}

// add reads one file on top of those before it.
func (u *unit) add(n node, file, text string) {
	u.files = append(u.files, file)
	text = strings.ReplaceAll(text, "\\\n", " ")
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(key, "#") || strings.HasPrefix(key, ";") {
			continue
		}
		value = strings.TrimSpace(value)
		switch strings.TrimSpace(key) {
		case "ExecStart":
			u.start = value // an empty one clears the earlier ones
		case "Environment":
			u.set(words(value))
		case "EnvironmentFile":
			name := strings.TrimPrefix(value, "-")
			u.files = append(u.files, name)
			u.set(n.environment(name))
		}
	}
}

func (u *unit) set(assignments []string) {
	for _, a := range assignments {
		if name, value, ok := strings.Cut(a, "="); ok {
			u.environment[name] = value
		}
	}
}

// environment returns the assignments of a file of NAME=value lines.
func (n node) environment(file string) []string {
	var all []string
	for line := range strings.Lines(n.Read(file).Value) {
		line = strings.TrimSpace(line)
		if name, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			all = append(all, name+"="+strings.Join(words(value), " "))
		}
	}
	return all
}

// args returns the program and its arguments, with variables expanded as systemd does: $NAME as a word of its own is
// split into words, ${NAME} is not.
func (u *unit) args() []string {
	var args []string
	for i, word := range words(u.start) {
		if i == 0 {
			word = strings.TrimLeft(word, "-@:+!|")
		}
		if name, ok := strings.CutPrefix(word, "$"); ok && !strings.HasPrefix(name, "{") {
			args = append(args, words(u.environment[name])...)
			continue
		}
		args = append(args, u.expand(word))
	}
	return args
}

// expand replaces ${NAME}, unless the variable is unset.
func (u *unit) expand(word string) string {
	var expanded strings.Builder
	for {
		before, rest, ok := strings.Cut(word, "${")
		expanded.WriteString(before)
		name, after, closed := strings.Cut(rest, "}")
		if !ok || !closed {
			expanded.WriteString(strings.TrimPrefix(word, before))
			return expanded.String()
		}
		value, set := u.environment[name]
		if !set {
			value = "${" + name + "}"
		}
		expanded.WriteString(value)
		word = after
	}
}

// startWith returns ExecStart with another value for an existing flag.
func (u *unit) startWith(value string, flags ...string) string {
	line := words(u.start)
	if _, ok := config.Option(line, flags...); !ok {
		line = u.args() // the flag is in a variable
	}
	for i, arg := range line {
		flag, _, inOne := strings.Cut(arg, "=")
		switch {
		case !slices.Contains(flags, flag):
		case inOne:
			line[i] = flag + "=" + value
		case i+1 < len(line):
			line[i+1] = value
		}
	}
	for i, arg := range line {
		if strings.ContainsAny(arg, " \t") {
			line[i] = `"` + arg + `"`
		}
	}
	return strings.Join(line, " ")
}

// words splits a line at spaces outside of quotes, and removes the quotes.
func words(line string) []string {
	var all []string
	var word strings.Builder
	quote, in := rune(0), false
	for _, c := range line {
		switch {
		case quote == 0 && (c == '"' || c == '\''):
			quote, in = c, true
		case c == quote:
			quote = 0
		case quote == 0 && (c == ' ' || c == '\t'):
			if in {
				all = append(all, word.String())
			}
			word.Reset()
			in = false
		default:
			word.WriteRune(c)
			in = true
		}
	}
	if in {
		all = append(all, word.String())
	}
	return all
}

// RuntimeOf returns the node's container runtime: the named one, or for Auto the one that the kubelet uses; None if the
// node has none.
func RuntimeOf(tree state.Tree, asked Runtime) Runtime { return node{tree: tree}.runtime(asked) }

// Units returns the systemd services of the node that start a runtime. Distributions of Kubernetes with their own
// containerd (K3s, RKE2, k0s, MicroK8s) have one service for both, and restarting it restarts the runtime. None if the
// node has no such service.
func Units(tree state.Tree, r Runtime) []string { return node{tree: tree}.units(r) }

// UsualUnits returns the services that usually start a runtime, whether or not they exist.
func UsualUnits(tree state.Tree, r Runtime) []string { return node{tree: tree}.usualUnits(r) }

func (n node) units(r Runtime) []string {
	return slices.DeleteFunc(n.usualUnits(r), func(name string) bool {
		_, there := n.unit(name)
		return !there
	})
}

func (n node) usualUnits(r Runtime) []string {
	switch m := n.maker(); {
	case r == RuntimeCRIO:
		return []string{"crio.service"}
	case r != RuntimeContainerd:
		return nil
	case m != nil:
		return m.units
	}
	return []string{containerdService}
}

// restarted says which services restart a runtime for a file, or that none does.
func (w *wants) restarted(n node, r Runtime, file string) {
	units := n.units(r)
	if len(units) == 0 {
		w.warn(file, "No known systemd service starts this node's "+string(r)+", so bootstrap can't restart it after changes.",
			"Restart "+string(r)+" yourself whenever its files change.")
		return
	}
	w.fact("restarted by", strings.Join(units, " "), file)
}

const (
	socketUnit  = "kata-vfio-pod-resources.socket"
	socketAsked = "kata-vfio-pod-resources.service"
)

// socketWants returns the unit that creates the socket's file before the first pod: two files, unless a package has
// them, and the link that enables it.
func socketWants(n node) (*wants, error) {
	w := &wants{part: "socket"}
	if !n.exists("/usr/lib/systemd") && !n.exists("/lib/systemd") {
		w.warn("", "The node has no systemd, so nothing creates /run/kata-vfio/pod-resources.sock before the first pod.",
			"Configure the node's init to create a socket file there at each boot, before the kubelet starts.")
		return w, nil
	}
	dir := "/etc/systemd/system"
	if packaged, ok := n.packagedUnit(); ok {
		dir = packaged
	} else if err := w.units(dir); err != nil {
		return nil, err
	}
	w.Files = append(w.Files, state.File{
		Part: w.part, Path: "etc/systemd/system/sockets.target.wants/" + socketUnit, Target: path.Join(dir, socketUnit),
		Why:  "systemd creates the socket's file at each boot: without it, Kata's Go runtime trusts a pod's annotations",
		Then: []state.FollowUp{state.UnitsReload, state.SocketStart},
	})
	return w, nil
}

// packagedUnit returns the directory where a package installed both files.
func (n node) packagedUnit() (string, bool) {
	for _, dir := range []string{"/usr/lib/systemd/system", "/lib/systemd/system"} {
		if n.exists(path.Join(dir, socketUnit)) && n.exists(path.Join(dir, socketAsked)) {
			return dir, true
		}
	}
	return "", false
}

// units requires the two files.
func (w *wants) units(dir string) error {
	for _, name := range []string{socketUnit, socketAsked} {
		text, err := runtimeclass.Files.ReadFile(path.Join("systemd", name))
		if err != nil {
			return err
		}
		w.file(path.Join(dir, name), text, "creates the pod-resources socket's file at boot", state.UnitsReload, state.SocketStart)
	}
	return nil
}
