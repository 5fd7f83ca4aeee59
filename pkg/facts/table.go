package facts

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// Table is a TOML table of a container runtime's configuration, as the runtime's own loader reads it: limited in size, merged from
// several files, and with the file that each setting comes from. Its values are of type Table, or of type leaf for everything else.
type Table map[string]any

// leaf is a value and the file that it comes from.
type leaf struct {
	value any
	file  string
}

// Limits of a configuration file. Real files have some hundred lines. A file with MaxTableSize bytes or more, or with deeper
// nesting than maxNesting, is an attack on the reader.
const (
	MaxTableSize = 1 << 20
	maxNesting   = 128
)

// ParseTable returns the table that a file holds. The error names file and line.
func ParseTable(file Fact) (Table, error) {
	if len(file.Value) >= MaxTableSize {
		return nil, fmt.Errorf("%s: it is longer than %d bytes", file.Path, MaxTableSize)
	}
	if line, deep := nestedTooDeep(file.Value); deep {
		return nil, fmt.Errorf("%s:%d: brackets or dotted keys more than %d deep", file.Path, line, maxNesting)
	}
	var raw map[string]any
	if err := toml.Unmarshal([]byte(file.Value), &raw); err != nil {
		if e, ok := errors.AsType[*toml.DecodeError](err); ok {
			row, _ := e.Position()
			return nil, fmt.Errorf("%s:%d: %s", file.Path, row, e.Error())
		}
		return nil, fmt.Errorf("%s: %w", file.Path, err)
	}
	return leaves(raw, file.Path), nil
}

// nestedTooDeep finds nesting that would exhaust the stack of a recursive parser. It also counts brackets in strings and comments.
// No file of a runtime has so many of them that this matters.
func nestedTooDeep(text string) (line int, deep bool) {
	for row := range strings.Lines(text) {
		line++
		if strings.Count(row, "[")+strings.Count(row, "{")+strings.Count(row, ".") > 8*maxNesting {
			return line, true
		}
	}
	depth, deepest := 0, 0
	for _, c := range []byte(text) {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth = max(0, depth-1)
		}
		deepest = max(deepest, depth)
	}
	return line, deepest > maxNesting
}

func leaves(raw map[string]any, file string) Table {
	t := make(Table, len(raw))
	for key, value := range raw {
		if sub, ok := value.(map[string]any); ok {
			t[key] = leaves(sub, file)
			continue
		}
		t[key] = leaf{value, file}
	}
	return t
}

// Merge overrides t with other: it merges tables key by key, and replaces all other values, lists included. This is how containerd
// 2 (cmd/containerd/server/config mergeConfig, whose lists inside of plugins replace) and both of Kata's runtimes (katautils
// updateFromDropIn, kata-types drop_in.rs) merge.
func (t Table) Merge(other Table) {
	for key, value := range other {
		to, into := t[key].(Table)
		from, of := value.(Table)
		if into && of {
			to.Merge(from)
			continue
		}
		t[key] = value
	}
}

// Sub returns a table in t, empty if there is none.
func (t Table) Sub(path ...string) Table {
	for _, key := range path {
		next, ok := t[key].(Table)
		if !ok {
			return Table{}
		}
		t = next
	}
	return t
}

// Names returns the keys that hold tables, sorted.
func (t Table) Names() []string {
	names := slices.Sorted(maps.Keys(t))
	return slices.DeleteFunc(names, func(name string) bool { _, ok := t[name].(Table); return !ok })
}

// Setting returns the setting with the key. where is the File of the result if no file sets it.
func (t Table) Setting(where, key string) TableSetting {
	if l, ok := t[key].(leaf); ok {
		return TableSetting{Name: key, File: l.file, value: l.value}
	}
	return TableSetting{Name: key, File: where}
}

// Clone returns a table that shares no table with t.
func (t Table) Clone() Table {
	c := make(Table, len(t))
	for key, value := range t {
		if sub, ok := value.(Table); ok {
			value = sub.Clone()
		}
		c[key] = value
	}
	return c
}

// Plain returns the values without the files that they come from.
func (t Table) Plain() map[string]any {
	plain := make(map[string]any, len(t))
	for key, value := range t {
		switch v := value.(type) {
		case Table:
			plain[key] = v.Plain()
		case leaf:
			plain[key] = v.value
		}
	}
	return plain
}

// Settings returns all settings of the table and of the tables below it, by their keys joined with dots.
func (t Table) Settings() map[string]TableSetting {
	all := map[string]TableSetting{}
	for key, value := range t {
		switch v := value.(type) {
		case Table:
			for below, s := range v.Settings() {
				all[key+"."+below] = s
			}
		case leaf:
			all[key] = TableSetting{Name: key, File: v.file, value: v.value}
		}
	}
	return all
}

// TableSetting is one setting after all files were merged.
type TableSetting struct {
	Name string
	// File is the last file that sets the value, or the base file if none does.
	File  string
	value any // nil if no file sets it
}

// IsSet reports whether a file sets it.
func (s TableSetting) IsSet() bool { return s.value != nil }

// Is reports whether both settings have the same value, regardless of their files.
func (s TableSetting) Is(other TableSetting) bool { return reflect.DeepEqual(s.value, other.value) }

// Text returns a string; empty if it is not set or not a string.
func (s TableSetting) Text() string {
	text, _ := s.value.(string)
	return text
}

// On reports whether a boolean is set to true.
func (s TableSetting) On() bool {
	on, _ := s.value.(bool)
	return on
}

// Number returns an integer; 0 if it is not set or not an integer.
func (s TableSetting) Number() int64 {
	n, _ := s.value.(int64)
	return n
}

// List returns the strings of a list; nil if it is not set or not a list.
func (s TableSetting) List() []string {
	items, _ := s.value.([]any)
	var list []string
	for _, item := range items {
		if text, ok := item.(string); ok {
			list = append(list, text)
		}
	}
	return list
}

// Fact returns the setting as evidence: the file and the value.
func (s TableSetting) Fact() Fact {
	f := Fact{Path: s.File, How: "config", Value: s.Name + " is not set"}
	switch v := s.value.(type) {
	case nil:
	case string:
		f.Value = fmt.Sprintf("%s = %q", s.Name, v)
	case []any:
		f.Value = fmt.Sprintf("%s = [%s]", s.Name, quoted(v))
	default:
		f.Value = fmt.Sprintf("%s = %v", s.Name, v)
	}
	return f
}

func quoted(items []any) string {
	var all []string
	for _, item := range items {
		all = append(all, fmt.Sprintf("%q", fmt.Sprint(item)))
	}
	return strings.Join(all, ", ")
}

// ShimCleanup is the name of containerd's timeout for the `delete` command that cleans up after a shim that ended. After the
// timeout, containerd kills the command.
const ShimCleanup = "io.containerd.timeout.shim.cleanup"

// Timeout returns one of containerd's timeouts. where is the File of the result if no file sets it.
func (t Table) Timeout(where, name string) TableSetting {
	return t.Sub("timeouts").Setting(where, name)
}

// Seconds returns a duration as containerd reads it, "1m30s"; false if it is not set or not a duration. containerd does not start
// with a value that is not a duration.
func (s TableSetting) Seconds() (float64, bool) {
	d, err := time.ParseDuration(s.Text())
	return d.Seconds(), err == nil
}

// Option returns the value of the last of the flags on a command line: "--name=value"
// or "--name value". A flag without a value at the line's end has none.
func Option(args []string, flags ...string) (value string, ok bool) {
	for i, arg := range args {
		name, inline, has := strings.Cut(arg, "=")
		switch {
		case !slices.Contains(flags, flagName(name)):
		case has:
			value, ok = inline, true
		case i+1 < len(args):
			value, ok = args[i+1], true
		}
	}
	return value, ok
}

// Switch returns the last value of a boolean flag, as Kubernetes' programs read it: a flag without "=" means true, and the next
// word is not its value. If the value is invalid, so that the program would not start, on is otherwise.
func Switch(args []string, flag string, otherwise bool) (on, ok bool) {
	for _, arg := range args {
		name, inline, has := strings.Cut(arg, "=")
		if flagName(name) != flag {
			continue
		}
		on, ok = true, true
		if value, err := strconv.ParseBool(inline); has && err == nil {
			on = value
		} else if has {
			on = otherwise
		}
	}
	return on, ok
}

// flagName returns a flag's name with "-" for each "_", which are the same for Kubernetes' programs.
func flagName(name string) string {
	if !strings.HasPrefix(name, "--") {
		return name
	}
	return strings.ReplaceAll(name, "_", "-")
}
