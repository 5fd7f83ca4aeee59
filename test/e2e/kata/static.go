package kata

import (
	"debug/elf"
	"fmt"
	"slices"
)

// mustBeStatic says why a program can't run in the lab's guest, which has no linker, no libraries and no shell. There its VM would boot, and the pod
// would fail after Kata's time limit, with nothing that names the agent.
func mustBeStatic(program string) error {
	f, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("read the program %s: %w", program, err)
	}
	defer f.Close() // it was only read
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return fmt.Errorf("%s is dynamic: it needs an interpreter and libraries, and the lab's guest has none. The agents in the guest images of "+
			"Kata 4.1.0's releases are dynamic, too. Build a static one (test/e2e/README.md, \"A static agent\"), and name it by KATA_AGENT", program)
	}
	return nil
}
