package facts

import (
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Tenancy is one function in the hands of a claim, by the journal.
type Tenancy struct {
	Address pci.Address
	// Record is the claim's; it is shared.
	Record *journal.Record
}

// Tenant is the claim's namespace.
func (t *Tenancy) Tenant() string { return t.Record.Plan.Claim.Namespace }

// Claim names the claim: "namespace/name".
func (t *Tenancy) Claim() string {
	ref := t.Record.Plan.Claim
	if ref.Name == "" {
		return ref.UID
	}
	return ref.Namespace + "/" + ref.Name
}

const journalDir = journal.DefaultDir

// readTenancies reads the journal. A record that can't be read is kept as damaged:
// any function may be in it. A standing binding has no tenant, and a record of an
// earlier boot says where its functions were, which still counts.
func (n *Node) readTenancies() {
	var records []*journal.Record
	records, n.Damaged = n.readJournal(n.Read)
	n.Tenancies = tenancies(records)
	n.journal, n.bound = records, map[pci.Address]bool{}
	for _, rec := range records {
		if rec.Kind != journal.Bound {
			n.records = append(n.records, rec)
		}
		for _, fn := range rec.Plan.Functions {
			n.bound[fn.Address] = n.bound[fn.Address] || rec.Kind == journal.Bound
		}
	}
	slices.SortFunc(n.records, func(a, b *journal.Record) int { return strings.Compare(a.ID(), b.ID()) })
}

// JournalNow reads the journal once more and returns all its records, those of
// standing bindings included, and the files that can't be read: who compares the
// journal with what was read after it must know what went on meanwhile.
func (n *Node) JournalNow() (records []*journal.Record, damaged []Fact) {
	return n.readJournal(func(name string) Fact {
		data, err := n.fs.ReadAtMost(name, maxFile)
		return fact(name, string(data), "read", err)
	})
}

// DriverNow returns the kernel driver that a function is bound to at this moment;
// "" for none. It is false for a function that is not there.
func (n *Node) DriverNow(a pci.Address) (driver string, ok bool) {
	driver, err := n.fs.Driver(a)
	return driver, err == nil
}

// readJournal returns all records by the name of their files, and the files that
// can't be read.
func (n *Node) readJournal(read func(name string) Fact) (records []*journal.Record, damaged []Fact) {
	// Not by List, which keeps its first answer: JournalNow has to see what came since.
	names, _ := n.fs.ReadDir(journalDir)
	for _, name := range names {
		if !journal.IsRecord(name) {
			continue
		}
		file := read(path.Join(journalDir, name))
		if file.Status == Absent {
			continue // removed since it was listed
		}
		rec, err := n.decode(name, file.Value)
		if file.OK() && err != nil {
			file.Status, file.Err = Broken, err.Error()
		}
		if !file.OK() {
			damaged = append(damaged, file)
			continue
		}
		records = append(records, rec)
	}
	return records, damaged
}

// decode decodes the record in a file. Readers of the same text share the record: an
// audit reads the journal several times, and hardly anything changes in between.
func (n *Node) decode(name, text string) (*journal.Record, error) {
	file := [2]string{name, text}
	if known, ok := n.decoded.Load(file); ok {
		return known.(*journal.Record), nil
	}
	rec, err := journal.DecodeFile(name, []byte(text))
	if err == nil {
		n.decoded.Store(file, rec)
	}
	return rec, err
}

// tenancies returns what the claims among the records have, by address.
func tenancies(records []*journal.Record) []Tenancy {
	var all []Tenancy
	for _, rec := range records {
		if rec.Kind == journal.Bound {
			continue
		}
		for _, fn := range rec.Plan.Functions {
			all = append(all, Tenancy{Address: fn.Address, Record: rec})
		}
	}
	slices.SortStableFunc(all, func(a, b Tenancy) int { return a.Address.Compare(b.Address) })
	return all
}

// Journal returns the list of the journal's directory, absent if the plugin
// never was.
func (n *Node) Journal() Fact {
	_, f := n.List(journalDir)
	return f
}

// IsBound reports whether the plugin keeps the function bound without a claim.
func (n *Node) IsBound(a pci.Address) bool { return n.bound[a] }

// IsThisBoot reports whether the record was begun since the node's last start:
// bindings, group numbers and device nodes of another one mean nothing.
func (n *Node) IsThisBoot(rec *journal.Record) bool { return rec.BootID == n.Snapshot.Host.BootID }

// ResetMark is the plugin's mark of a function that a tenant could reach and whose reset has not been proven since, with
// its file as evidence.
type ResetMark struct {
	Mark journal.ResetMark
	File Fact
}

// NeedsReset returns the plugin's marks of functions without a proven reset.
func (n *Node) NeedsReset() (marks []ResetMark, dir Fact) {
	dirName := path.Join(journalDir, "unclean")
	names, dir := n.List(dirName)
	for _, name := range names {
		a, isMark := journal.MarkAddress(name)
		if !isMark {
			continue // a write that a crash cut off
		}
		name = path.Join(dirName, name)
		if file := n.Read(name); file.Status != Absent {
			marks = append(marks, ResetMark{Mark: journal.DecodeResetMark("/"+name, []byte(file.Value), a), File: file})
		}
	}
	return marks, dir
}

// TenanciesAt returns the claims that have the function, more than one if the
// journal contradicts itself.
func (n *Node) TenanciesAt(a pci.Address) []Tenancy { return filterTenancies(n.Tenancies, a) }

func filterTenancies(all []Tenancy, a pci.Address) []Tenancy {
	first, _ := slices.BinarySearchFunc(all, a, func(t Tenancy, a pci.Address) int { return t.Address.Compare(a) })
	end := first
	for end < len(all) && all[end].Address == a {
		end++
	}
	return all[first:end]
}

// Tenants returns the tenants that have any of the functions, sorted, each once.
func (n *Node) Tenants(addrs ...pci.Address) []string {
	var tenants []string
	for _, a := range addrs {
		for _, t := range n.TenanciesAt(a) {
			tenants = append(tenants, t.Tenant())
		}
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

// Records returns the claims' records, by UID. They are shared.
func (n *Node) Records() []*journal.Record { return n.records }

// AllRecords returns all records, those of standing bindings included, by the names
// of their files. They are shared.
func (n *Node) AllRecords() []*journal.Record { return n.journal }

// Record returns the record of the claim with the UID.
func (n *Node) Record(uid string) (*journal.Record, bool) {
	i, ok := slices.BinarySearchFunc(n.records, uid, func(r *journal.Record, uid string) int { return strings.Compare(r.ID(), uid) })
	if !ok {
		return nil, false
	}
	return n.records[i], true
}
