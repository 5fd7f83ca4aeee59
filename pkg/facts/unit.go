package facts

import (
	"path"
	"slices"
	"strings"
)

// PodResourcesSocket is kata-vfio's systemd unit that creates the file of the pod-resources socket at boot, before the first pod starts.
const PodResourcesSocket = "kata-vfio-pod-resources.socket"

// Unit is a systemd service, as its files define it.
type Unit struct {
	// Files are the unit, its drop-ins and its environment files, in the order of precedence.
	Files []string
	// start is the last ExecStart, unparsed.
	start       string
	environment map[string]string
	// environmentFiles are the files that EnvironmentFile names.
	environmentFiles []string
}

// unitDirs are the directories in which systemd looks for units (systemd.unit(5)), in the order of precedence.
func unitDirs() []string {
	return []string{
		"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system",
	}
}

// LoadUnit returns a service with its drop-ins, except the given ones. It returns false if the service does not exist or
// is masked.
func LoadUnit(node Tree, service string, without ...string) (*Unit, bool) {
	u := &Unit{environment: map[string]string{}}
	for _, dir := range unitDirs() {
		name := path.Join(dir, service)
		file := node.Read(name)
		if file.Value == "" && node.IsLink(name) {
			return nil, false // a link to /dev/null, or to nothing
		}
		if file.OK() {
			u.add(file.Path, file.Value)
			break
		}
	}
	if len(u.Files) == 0 {
		return nil, false
	}
	for _, name := range unitDropIns(node, service) {
		if file := node.Read(name); file.OK() && !slices.Contains(without, name) {
			u.add(name, file.Value)
		}
	}
	// These files come after all Environment settings, wherever they are named: systemd reads them when it starts the service, and
	// they override Environment (systemd.exec(5)).
	for _, name := range u.environmentFiles {
		u.Files = append(u.Files, name)
		u.set(environment(node, name))
	}
	return u, true
}

// unitDropIns returns a service's drop-ins by name. Of several drop-ins with one name, the one in the first directory is used.
func unitDropIns(node Tree, service string) []string {
	byName := map[string]string{}
	var names []string
	for _, dir := range unitDirs() {
		in, _ := node.Names(path.Join(dir, service+".d"))
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

// add overrides the settings of earlier files with those of one more file.
func (u *Unit) add(file, text string) {
	u.Files = append(u.Files, file)
	// A line that ends with a backslash is continued, and a space replaces both (systemd.syntax(7)).
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
			if value == "" { // an empty value resets the list
				clear(u.environment)
			}
			u.set(Words(value))
		case "EnvironmentFile":
			if value == "" {
				u.environmentFiles = nil
				continue
			}
			u.environmentFiles = append(u.environmentFiles, strings.TrimPrefix(value, "-"))
		}
	}
}

func (u *Unit) set(assignments []string) {
	for _, a := range assignments {
		if name, value, ok := strings.Cut(a, "="); ok {
			u.environment[name] = value
		}
	}
}

// environment returns the assignments of a file of NAME=value lines.
func environment(files FileReader, name string) []string {
	var all []string
	for line := range strings.Lines(files.Read(name).Value) {
		line = strings.TrimSpace(line)
		if name, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			all = append(all, name+"="+strings.Join(Words(value), " "))
		}
	}
	return all
}

// Args returns the program and its arguments, with variables expanded as systemd does: $NAME as a word of its own is
// split into words, ${NAME} is not.
func (u *Unit) Args() []string {
	var args []string
	for i, word := range Words(u.start) {
		if i == 0 {
			// These prefixes of the program say how systemd runs it (systemd.service(5)).
			word = strings.TrimLeft(word, "-@:+!|")
		}
		if name, ok := strings.CutPrefix(word, "$"); ok && !strings.HasPrefix(name, "{") {
			args = append(args, Words(u.environment[name])...)
			continue
		}
		args = append(args, u.expand(word))
	}
	return args
}

// expand replaces ${NAME}, unless the variable is unset.
func (u *Unit) expand(word string) string {
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
		// systemd expands an unset variable to nothing. But the variable may be set in the service manager, which no file of the unit
		// shows, so the reference stays.
		if !set {
			value = "${" + name + "}"
		}
		expanded.WriteString(value)
		word = after
	}
}

// StartWith returns ExecStart with another value for an existing flag.
func (u *Unit) StartWith(value string, flags ...string) string {
	line := Words(u.start)
	if _, ok := Option(line, flags...); !ok {
		line = u.Args() // the flag is in a variable
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

// Words splits a line at spaces outside of quotes, and removes the quotes.
func Words(line string) []string {
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
