package hosts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A tree is a node's files in a directory.
type tree struct {
	tb   testing.TB
	root string
}

func (t *tree) path(name string) string { return filepath.Join(t.root, name) }

func (t *tree) check(err error) {
	t.tb.Helper()
	if err != nil {
		t.tb.Fatal(err)
	}
}

// put writes a file. "-> target" is a link, "=> /path" one that leads to the path below the node's root, "elf amd64" and "elf arm64" are
// programs, and a name that ends in a slash is a directory.
func (t *tree) put(name, text string) {
	t.tb.Helper()
	place := t.path(name)
	t.check(os.MkdirAll(filepath.Dir(place), 0o755))
	switch target, link := strings.CutPrefix(text, "-> "); {
	case strings.HasSuffix(name, "/"):
		t.check(os.MkdirAll(place, 0o755))
	case link:
		t.replace(place, target)
	case strings.HasPrefix(text, "=> "):
		t.link(name, text[len("=> "):])
	default:
		t.check(os.WriteFile(place, []byte(program(text)), mode(name)))
	}
}

// link makes a link that leads to the target, a path of the node, wherever the tree lies.
func (t *tree) link(name, target string) {
	t.tb.Helper()
	place := t.path(name)
	t.check(os.MkdirAll(filepath.Dir(place), 0o755))
	relative, err := filepath.Rel(filepath.Dir(place), t.path(target))
	t.check(err)
	t.replace(place, relative)
}

func (t *tree) replace(place, target string) {
	t.tb.Helper()
	t.check(os.RemoveAll(place))
	t.check(os.Symlink(target, place))
}

// text is what is in a file, or "" if it is not there.
func (t *tree) text(name string) string {
	data, err := os.ReadFile(t.path(name))
	if err != nil {
		return ""
	}
	return string(data)
}

// mode is that of a program in a directory of programs.
func mode(name string) os.FileMode {
	if dir := filepath.Base(filepath.Dir(name)); dir == "bin" || dir == "sbin" {
		return 0o755
	}
	return 0o644
}

// program makes the beginning of an ELF file of what stands for it.
func program(text string) string {
	machine, ok := map[string]string{"elf amd64": "\x3e", "elf arm64": "\xb7"}[text]
	if !ok {
		return text
	}
	return "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x03\x00" + machine + "\x00" + strings.Repeat("\x00", 44)
}

func (t *tree) remove(name string) {
	t.tb.Helper()
	matches, err := filepath.Glob(t.path(name))
	t.check(err)
	if len(matches) == 0 {
		t.tb.Fatalf("%s is not there anyway", name)
	}
	for _, match := range matches {
		t.check(os.RemoveAll(match))
	}
}
