package main

import (
	"bytes"
	"debug/elf"
	"fmt"
	"slices"
	"strings"
)

// architecture tells by an image's word which processor a program is for. An error is what can't run in an image that
// has nothing else: in a container it would be "no such file or directory", of a file that is there.
func architecture(content []byte) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return "", fmt.Errorf("it is no Linux program: %w", err)
	}
	if f.Type != elf.ET_EXEC && f.Type != elf.ET_DYN || f.Entry == 0 {
		return "", fmt.Errorf("it is not a program but %s without a start", f.Type)
	}
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		libraries, _ := f.ImportedLibraries() // for the message only
		return "", fmt.Errorf("it is not static and needs a dynamic linker [%s]: build it with CGO_ENABLED=0",
			strings.Join(libraries, " "))
	}
	return word(f)
}

// machine is architecture of a dynamic program or a library.
func machine(content []byte) (string, error) {
	f, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return "", fmt.Errorf("it is no Linux program: %w", err)
	}
	return word(f)
}

// word returns an image's word for the processor.
func word(f *elf.File) (string, error) {
	switch f.Machine {
	case elf.EM_X86_64:
		return "amd64", nil
	case elf.EM_AARCH64:
		return "arm64", nil
	default:
		return "", fmt.Errorf("it is for %s: want x86-64 or AArch64", f.Machine)
	}
}
