package kata

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// program is the smallest file that is an executable with one segment.
func program(t *testing.T, segment elf.ProgType) string {
	t.Helper()
	const headerSize, segmentSize = 64, 56
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Phoff: headerSize, Ehsize: headerSize, Phentsize: segmentSize, Phnum: 1,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	var text bytes.Buffer
	for _, part := range []any{header, elf.Prog64{Type: uint32(segment)}} {
		if err := binary.Write(&text, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "kata-agent")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAgentMustBeStatic(t *testing.T) {
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct{ program, want string }{
		"static":  {program: program(t, elf.PT_LOAD)},
		"dynamic": {program: program(t, elf.PT_INTERP), want: "A static agent"},
		"script":  {program: script, want: "read the program"},
		"missing": {program: "/nowhere/agent", want: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			err := mustBeStatic(tt.program)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("mustBeStatic(%s) = %v; want %q", tt.program, err, tt.want)
			}
		})
	}
}

// Without it, an installation's own agent would let each VM run into Kata's time limit.
func TestFindRefusesDynamicAgent(t *testing.T) {
	dir := release(t, goShim, goConfig)
	for name, source := range map[string]Source{
		"of the installation": {Dir: dir},
		"that is named":       {Dir: dir, Agent: program(t, elf.PT_INTERP)},
	} {
		t.Run(name, func(t *testing.T) {
			if source.Agent == "" {
				text, err := os.ReadFile(program(t, elf.PT_INTERP))
				if err != nil {
					t.Fatal(err)
				}
				write(t, dir, agentFile, string(text))
			}
			if got, err := Find(t.Context(), source, Go); err == nil || !strings.Contains(err.Error(), "is dynamic") {
				t.Errorf("Find = %+v, %v; want an error that says that the agent is dynamic", got, err)
			}
		})
	}
}
