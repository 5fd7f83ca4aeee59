package kernelargs

import (
	"path"
	"slices"
	"strings"
)

// Line is a part of a kernel command line that a file gives to later boots, and the file's line that has it.
type Line struct {
	// Path is below the node's root, without a leading slash.
	Path   string
	Number int
	Value  string
}

// Settings evaluates the assignments in files in shell syntax, such as etc/default/grub. It runs no command. If a
// condition decides which value a variable gets, Settings keeps both values. So its result may have more than a shell
// would set, but never less.
type Settings struct {
	values map[string][]Line
	// replaced is where a variable was last set without its earlier value.
	replaced map[string]Line
	// text returns a file that is sourced, or "".
	text func(name string) string
	// path is the file that is being read. around are it and the files that source each other around it. depth is how
	// many words are around the word that is being expanded.
	path   string
	around []string
	depth  int
	// work counts what the evaluation takes, see maxWork.
	work int
	// blocks is the number of conditions around the present command.
	blocks int
}

// NewSettings returns settings without variables. Text returns a file that another one sources, or "".
func NewSettings(text func(name string) string) *Settings {
	return &Settings{values: map[string][]Line{}, replaced: map[string]Line{}, text: text}
}

// Value returns the value of a variable, by the lines that it is from.
func (s *Settings) Value(variable string) []Line { return s.values[variable] }

// Text returns the value of a variable.
func (s *Settings) Text(variable string) string { return join(s.values[variable]) }

// Has reports whether a variable is set, if only to nothing.
func (s *Settings) Has(variable string) bool {
	_, ok := s.values[variable]
	return ok
}

// Replaced returns where a variable was last set without its earlier value. It is empty if it never was.
func (s *Settings) Replaced(variable string) Line { return s.replaced[variable] }

// Limits against damaged or hostile files. maxNested is for files that source each other and for nested substitutions,
// maxParts for the parts of a value, and maxBytes for its text. No kernel takes a command line of that size.
const (
	maxNested = 8
	maxParts  = 4096
	maxBytes  = 1 << 16
)

// maxWork limits the evaluation of all files together, because a short file can source others, or copy a long value,
// any number of times. It is in bytes of files and values that are looked at. A part of a value counts as partWork more,
// and a look for a file that is sourced as fileWork.
const (
	maxWork  = 1 << 28
	partWork = 1 << 6
	fileWork = 1 << 16
)

// count adds the work on the parts of a value.
func (s *Settings) count(parts []Line) {
	for i := range parts {
		s.work += len(parts[i].Value) + partWork
	}
}

// bounded returns the parts of a value up to the limits.
func bounded(parts []Line) []Line {
	size := 0
	for i := range parts {
		if size += len(parts[i].Value); i >= maxParts || size > maxBytes {
			return parts[:i]
		}
	}
	return parts
}

// Source evaluates a file. If the work becomes too much, the rest of it does not count.
func (s *Settings) Source(name, text string) {
	former, blocks := s.path, s.blocks
	s.path, s.around = name, append(s.around, name)
	c := command{}
	all := tokens(text)
	s.work += len(text)
	for i, t := range all {
		if s.work > maxWork {
			break
		}
		if t.operator {
			c = command{conditional: t.text == "&&" || t.text == "||"}
			continue
		}
		c.look(all, i+1)
		s.word(&c, t)
	}
	s.path, s.blocks, s.around = former, blocks, s.around[:len(s.around)-1]
}

// command is the command that is read.
type command struct {
	// name is its first word that assigns nothing.
	name string
	// conditional says that the command runs only if the command before it succeeded, or only if it failed.
	conditional bool
	// end is the index of the first token after the present one that is not an assignment, and runs says that this token is
	// a word, and so the command goes on.
	end  int
	runs bool
}

// look finds what comes after the assignments that begin at the index i. It looks at each token once, because a command
// may have thousands of assignments.
func (c *command) look(all []token, i int) {
	if c.end >= i {
		return
	}
	for c.end = i; c.end < len(all) && isAssignment(all[c.end]); {
		c.end++
	}
	c.runs = c.end < len(all) && !all[c.end].operator
}

func isAssignment(t token) bool {
	_, assigns := cutAssignment(t.text)
	return assigns && !t.operator
}

// isBeforeCommand reports whether the present assignment stands before the name of a command. Such assignments are for
// that command only (POSIX.1-2017, Shell Command Language 2.9.1).
func (c *command) isBeforeCommand() bool { return c.runs && c.name == "" }

// assigners are commands whose arguments are assignments. GRUB's own scripts have "set".
func assigners() []string {
	return []string{"export", "declare", "typeset", "readonly", "local", "set"}
}

func (s *Settings) word(c *command, t token) {
	a, assigns := cutAssignment(t.text)
	switch {
	case assigns:
		parts := s.expand(a.value, t.line)
		definite := s.blocks == 0 && !c.conditional && !c.isBeforeCommand() && !a.element && (c.name == "" || slices.Contains(assigners(), c.name))
		s.assign(a.name, parts, a.plus, definite, t.line)
		return
	case c.name == "." || c.name == "source":
		s.include(t)
	case c.name == "":
		s.begin(t.text)
	}
	s.expand(t.text, t.line) // for ${NAME:=value}
	if c.name == "" && !slices.Contains([]string{"then", "do", "else", "!", "{"}, t.text) {
		c.name = t.text
	}
}

// begin counts the words that open and close conditions.
func (s *Settings) begin(word string) {
	switch word {
	case "if", "case", "while", "until", "for":
		s.blocks++
	case "fi", "esac", "done":
		s.blocks = max(s.blocks-1, 0)
	}
}

func (s *Settings) include(t token) {
	// Files are named below the node's root, which may be an image's.
	name := strings.TrimPrefix(path.Clean("/"+join(s.expand(t.text, t.line))), "/")
	if s.text == nil || len(s.around) > maxNested || name == "" || slices.Contains(s.around, name) {
		return
	}
	if s.work += fileWork; s.work <= maxWork {
		s.Source(name, s.text(name))
	}
}

func (s *Settings) assign(name string, parts []Line, plus, definite bool, line int) {
	s.count(s.values[name])
	switch {
	case plus || !definite && !keeps(parts, s.values[name]):
		// += appends the value as it is. If the assignment may not run, both values count, as separate words.
		parts = append(slices.Clone(s.values[name]), spaced(parts, !plus)...)
	case definite && len(s.values[name]) > 0 && !keeps(parts, s.values[name]):
		s.replaced[name] = Line{Path: s.path, Number: line}
	}
	s.values[name] = bounded(parts)
}

// keeps reports whether a value has all of an earlier one.
func keeps(parts, former []Line) bool {
	return len(former) > 0 && slices.Contains(parts, former[0]) && strings.Contains(join(parts), join(former))
}

// spaced separates a value from the one before it.
func spaced(parts []Line, separate bool) []Line {
	if !separate || len(parts) == 0 {
		return parts
	}
	first := parts[0]
	first.Value = " " + first.Value
	return append([]Line{first}, parts[1:]...)
}

// join returns a value as it is in the shell.
func join(parts []Line) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Value)
	}
	return b.String()
}

// assignment is NAME=value, NAME+=value, or either for an element: NAME[key]=value.
type assignment struct {
	name, value string
	plus        bool
	// element says that the variable is an array. All elements of an array count as one value, with spaces in between.
	element bool
}

// cutAssignment splits a word that is an assignment.
func cutAssignment(word string) (assignment, bool) {
	name, value, ok := strings.Cut(word, "=")
	name, plus := strings.CutSuffix(name, "+")
	if array, key, has := strings.Cut(name, "["); has && strings.HasSuffix(key, "]") {
		return assignment{name: array, value: value, element: true}, ok && isName(array)
	}
	return assignment{name: name, value: value, plus: plus}, ok && isName(name)
}

func isName(text string) bool {
	for i, c := range []byte(text) {
		if !isNameByte(c) || i == 0 && c >= '0' && c <= '9' {
			return false
		}
	}
	return text != ""
}

func isNameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
