package main

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"time"
)

// addDynamic adds the dynamic programs, the libraries that they load when they run, and all that these need: the dynamic
// linker and libraries of this host, each at its path here. The libraries that they load lie beside the C library, where the
// linker looks in any case: an image has no cache of other directories. Such an image is for this host's processor.
func (r *request) addDynamic(programs map[string][]program) error {
	if len(r.dynamic) == 0 {
		return nil
	}
	if len(programs) != 1 {
		return fmt.Errorf("dynamic programs are for one processor, and the others for %d", len(programs))
	}
	arch := slices.Collect(maps.Keys(programs))[0]
	needed := map[string]string{} // files of this host, by their paths in the image
	home := ""                    // the C library's directory
	for _, p := range slices.Sorted(maps.Keys(r.dynamic)) {
		file := r.dynamic[p]
		linker, err := interpreter(file)
		if err != nil {
			return fmt.Errorf("program %s is %s: %w", p, file, err)
		}
		needed[p], needed[linker] = file, linker
		for _, of := range append([]string{file}, r.libraries...) {
			libraries, err := list(linker, of)
			if err != nil {
				return fmt.Errorf("the libraries of %s: %w", of, err)
			}
			for _, l := range libraries {
				needed[l] = l
				if strings.HasPrefix(path.Base(l), "libc.") {
					home = path.Dir(l)
				}
			}
		}
	}
	for _, l := range r.libraries {
		if home == "" {
			return fmt.Errorf("no program needs a C library, which library %s would lie beside", l)
		}
		needed[path.Join(home, path.Base(l))] = l
	}
	for _, p := range slices.Sorted(maps.Keys(needed)) {
		content, err := os.ReadFile(needed[p])
		if err != nil {
			return err
		}
		got, err := machine(content)
		if err == nil && got != arch {
			err = fmt.Errorf("it is for %s, and the others for %s", got, arch)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", needed[p], err)
		}
		programs[arch] = append(programs[arch], program{path: p, content: content})
	}
	slices.SortFunc(programs[arch], func(a, b program) int { return strings.Compare(a.path, b.path) })
	return nil
}

// interpreter returns the dynamic linker of a program.
func interpreter(file string) (string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
			return strings.TrimRight(string(name), "\x00"), err
		}
	}
	return "", errors.New("it is static: name it without -dynamic")
}

// list returns the paths of the libraries that a program or a library needs, as the dynamic linker finds them.
func list(linker, of string) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, linker, "--list", of).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		// "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f...)"; the kernel's own has no path.
		_, found, ok := strings.Cut(line, " => ")
		file, _, _ := strings.Cut(strings.TrimSpace(found), " (")
		switch {
		case !ok:
		case file == "not found":
			return nil, fmt.Errorf("this host lacks one: %s", strings.TrimSpace(line))
		default:
			all = append(all, file)
		}
	}
	return all, nil
}
