package kata

import (
	"debug/elf"
	"fmt"
	"slices"
)

// mustBeStatic returns the reason why a program can't run in the lab's guest, which has no linker, no libraries and no shell.
// Without this check, the VM would boot, and the pod would fail after Kata's time limit, with nothing that names the agent.
func mustBeStatic(program string) error {
	dynamic, err := needsInterpreter(program)
	if err != nil {
		return err
	}
	if dynamic {
		return fmt.Errorf("%s is dynamic: it needs an interpreter and libraries, and the lab's guest has none. The agents in the guest images of "+
			"Kata 4.1.0's releases are dynamic, too. Build a static one (test/e2e/README.md, \"A static agent\"), and name it by KATA_AGENT", program)
	}
	return nil
}

// needsInterpreter reports whether a program is dynamic.
func needsInterpreter(program string) (bool, error) {
	f, err := elf.Open(program)
	if err != nil {
		return false, fmt.Errorf("read the program %s: %w", program, err)
	}
	defer f.Close() // it was only read
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }), nil
}
