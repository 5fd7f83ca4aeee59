package facts

import (
	"fmt"
)

// CRI-O's files (pkg/config CrioConfigPath, CrioConfigDropInPath) and its socket (CrioSocketPath).
const (
	CRIOConfig  = "/etc/crio/crio.conf"
	CRIODropIns = "/etc/crio/crio.conf.d"
	CRIOSocket  = "/run/crio/crio.sock"
)

// CRIO is the configuration that CRI-O loads from its files.
type CRIO struct {
	All Table
	// Files are the files that were read, in the order in which they apply. Damaged files could not be read or
	// parsed: CRI-O would not start with them.
	Files, Damaged []Fact
}

// LoadCRIO reads CRI-O's configuration as CRI-O does: first the main file, then each file below the directory of drop-ins, sorted by path.
func LoadCRIO(node interface {
	FileReader
	dirReader
},
) *CRIO {
	c := &CRIO{All: Table{}}
	if _, listed := node.Names(CRIODropIns); !listed.Known() {
		c.Damaged = append(c.Damaged, listed)
	}
	names := walkTree(node, CRIODropIns)
	if len(names) > MaxTableFiles {
		c.Damaged = append(c.Damaged, Fact{Path: CRIODropIns, How: "list"}.BrokenBy(fmt.Errorf("%s: more than %d files", CRIODropIns, MaxTableFiles)))
		names = names[:MaxTableFiles]
	}
	if node.Read(CRIOConfig).Status != Absent {
		names = append([]string{CRIOConfig}, names...)
	}
	for _, name := range names {
		file := node.Read(name)
		if !file.OK() {
			c.Damaged = append(c.Damaged, file)
			continue
		}
		t, err := ParseTable(file)
		if err != nil {
			c.Damaged = append(c.Damaged, file.BrokenBy(err))
			continue
		}
		c.Files = append(c.Files, file)
		c.All.MergeCRIO(t)
	}
	return c
}

// MergeCRIO merges a file of CRI-O's over those before it. A handler replaces the whole handler before it, since
// the decoder replaces the values of maps (UpdateFromDropInFile).
func (t Table) MergeCRIO(other Table) {
	handlers := t.Sub("crio", "runtime", "runtimes")
	for _, name := range other.Sub("crio", "runtime", "runtimes").Names() {
		delete(handlers, name)
	}
	t.Merge(other)
}
