// Package kmod finds kernel modules and what they depend on, and loads them, for programs that run before or
// without modprobe: the builder of the lab's image, the machine's first process and the nested VM's.
package kmod

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Index is the modules of one kernel: the content of modules.dep and modules.builtin (man 5 modules.dep).
type Index struct {
	files   map[string]string   // name -> file, relative to the directory of the index
	deps    map[string][]string // name -> the names it needs, in the order of modules.dep
	builtin map[string]bool
}

// Read reads the index of a directory like /lib/modules/<version>.
func Read(dir fs.FS) (*Index, error) {
	dep, err := fs.ReadFile(dir, "modules.dep")
	if err != nil {
		return nil, fmt.Errorf("read the module index: %w", err)
	}
	builtin, err := fs.ReadFile(dir, "modules.builtin")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the list of built-in modules: %w", err)
	}
	idx := &Index{files: map[string]string{}, deps: map[string][]string{}, builtin: map[string]bool{}}
	for line := range strings.Lines(string(dep)) {
		idx.addLine(line)
	}
	for line := range strings.Lines(string(builtin)) {
		idx.builtin[Name(strings.TrimSpace(line))] = true
	}
	return idx, nil
}

// addLine takes a line of modules.dep: "kernel/a.ko.xz: kernel/b.ko.xz kernel/c.ko.xz".
func (x *Index) addLine(line string) {
	file, needs, ok := strings.Cut(strings.TrimSpace(line), ":")
	if !ok {
		return
	}
	name := Name(file)
	x.files[name] = file
	for need := range strings.FieldsSeq(needs) {
		x.deps[name] = append(x.deps[name], Name(need))
	}
}

// Name is the name of a module as the kernel shows it, from a file's path or a name as modprobe takes it.
func Name(file string) string {
	name, _, _ := strings.Cut(path.Base(file), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

// Files lists the files of the named modules and of all that they need, in an order in which they load, each
// once. Modules that are built into the kernel have no file. An unknown name is an error.
func (x *Index) Files(names ...string) ([]string, error) {
	var files []string
	seen := map[string]bool{}
	for _, name := range names {
		if err := x.collect(Name(name), seen, &files); err != nil {
			return nil, fmt.Errorf("module %s: %w", name, err)
		}
	}
	return files, nil
}

func (x *Index) collect(name string, seen map[string]bool, files *[]string) error {
	if seen[name] || x.builtin[name] {
		return nil
	}
	seen[name] = true
	file, ok := x.files[name]
	if !ok {
		return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	for _, dep := range x.deps[name] {
		if err := x.collect(dep, seen, files); err != nil {
			return err
		}
	}
	*files = append(*files, file)
	return nil
}
