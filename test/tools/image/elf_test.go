package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// header is the beginning of an ELF file, which is all that is looked at.
type header struct {
	typ     elf.Type
	machine elf.Machine
	entry   uint64
	segment elf.ProgType
}

func staticHeader() header {
	return header{typ: elf.ET_EXEC, machine: elf.EM_X86_64, entry: 0x1000, segment: elf.PT_LOAD}
}

func (h header) bytes(t *testing.T) []byte {
	t.Helper()
	const size, segmentSize = 64, 56
	var content bytes.Buffer
	for _, part := range []any{
		elf.Header64{
			Ident: [elf.EI_NIDENT]byte{
				0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT),
			},
			Type: uint16(h.typ), Machine: uint16(h.machine), Version: uint32(elf.EV_CURRENT), Entry: h.entry,
			Phoff: size, Ehsize: size, Phentsize: segmentSize, Phnum: 1,
		},
		elf.Prog64{Type: uint32(h.segment), Flags: uint32(elf.PF_R | elf.PF_X)},
	} {
		if err := binary.Write(&content, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return content.Bytes()
}

func TestStaticProgramsTellTheirArchitecture(t *testing.T) {
	for name, one := range map[string]struct {
		change func(*header)
		want   string
	}{
		"x86-64":                            {change: func(*header) {}, want: "amd64"},
		"AArch64":                           {change: func(h *header) { h.machine = elf.EM_AARCH64 }, want: "arm64"},
		"static, to be loaded at any place": {change: func(h *header) { h.typ = elf.ET_DYN }, want: "amd64"},
	} {
		h := staticHeader()
		one.change(&h)
		if got, err := architecture(h.bytes(t)); err != nil || got != one.want {
			t.Errorf("%s: it is for %q, %v; want %q", name, got, err, one.want)
		}
	}
}

func TestELFRefusesDynamicPrograms(t *testing.T) {
	for name, one := range map[string]struct {
		change func(*header)
		want   string
	}{
		"a dynamic program":   {change: func(h *header) { h.segment = elf.PT_INTERP }, want: "not static"},
		"an object file":      {change: func(h *header) { h.typ = elf.ET_REL }, want: "ET_REL"},
		"a library":           {change: func(h *header) { h.typ, h.entry = elf.ET_DYN, 0 }, want: "ET_DYN without a start"},
		"another processor's": {change: func(h *header) { h.machine = elf.EM_S390 }, want: "EM_S390"},
	} {
		h := staticHeader()
		one.change(&h)
		if got, err := architecture(h.bytes(t)); err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: it is for %q, %v; want an error with %q", name, got, err, one.want)
		}
	}
	if got, err := architecture([]byte("#!/bin/sh\n")); err == nil {
		t.Errorf("a script is for %q", got)
	}
}

// What the compiler makes is what the headers above stand for.
func TestRealProgramsAreStaticOrNot(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, static := range map[string]bool{"exe": true, "pie": false} {
		program := filepath.Join(dir, mode)
		cmd := exec.CommandContext(t.Context(), "go", "build", "-buildmode="+mode, "-o", program, source)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		content, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := architecture(content); (err == nil) != static || static && got != "amd64" {
			t.Errorf("-buildmode=%s: it is for %q, %v", mode, got, err)
		}
	}
}
