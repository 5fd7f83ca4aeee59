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

// CRIO is what CRI-O makes of its files.
type CRIO struct {
	All Table
	// Files are the files that were read, in the order in which they apply. Damaged files could not be read or
	// parsed: CRI-O would not start with them.
	Files, Damaged []Fact
}

// LoadCRIO reads CRI-O's configuration as it does: the file, and each below the
// directory of drop-ins by path.
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
		c.damaged(Fact{Path: CRIODropIns, How: "list"}, fmt.Errorf("%s: more than %d files", CRIODropIns, MaxTableFiles))
		names = names[:MaxTableFiles]
	}
	if node.Read(CRIOConfig).Status != Absent {
		names = append([]string{CRIOConfig}, names...)
	}
	for _, name := range names {
		file := node.Read(name)
		if !file.OK() {
			c.damaged(file, nil)
			continue
		}
		t, err := ParseTable(file)
		if err != nil {
			c.damaged(file, err)
			continue
		}
		c.Files = append(c.Files, file)
		c.All.MergeCRIO(t)
	}
	return c
}

// damaged keeps a file that does not help.
func (c *CRIO) damaged(file Fact, err error) {
	if err != nil {
		file.Status, file.Err = Broken, err.Error()
	}
	c.Damaged = append(c.Damaged, file)
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
