package facts

import (
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// Tenancy is one function that a claim has, by the journal.
type Tenancy struct {
	Address pci.Address
	// Record is the claim's record. Callers share it and must not change it.
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

// readTenancies reads the journal. A record that can't be read is kept in Damaged, because it may contain any function. Bindings
// without a claim have no tenant. Records of an earlier boot count too, because they say which functions their claims have.
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

// JournalNow reads the journal again and returns all its records, including those of bindings without a claim, and the files that
// can't be read. Use it to compare the journal with facts that were read later than [New]'s copy of the journal.
func (n *Node) JournalNow() (records []*journal.Record, damaged []Fact) {
	return n.readJournal(func(name string) Fact {
		data, err := n.fs.ReadAtMost(name, maxFile)
		return fact(name, string(data), "read", err)
	})
}

// DriverNow returns the kernel driver that a function is bound to at this moment; "" for none. ok is false if the driver could not
// be read, as for a function that does not exist.
func (n *Node) DriverNow(a pci.Address) (driver string, ok bool) {
	driver, err := n.fs.Driver(a)
	return driver, err == nil
}

// readJournal returns all records by the name of their files, and the files that
// can't be read.
func (n *Node) readJournal(read func(name string) Fact) (records []*journal.Record, damaged []Fact) {
	// List would return its first answer again, but JournalNow must see new records.
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

// decode decodes the record in a file. If the text has not changed, it returns the record that it decoded before: an audit reads
// the journal several times, and it hardly changes in between.
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

// Journal returns the fact of listing the journal's directory. It is Absent if the plugin never ran on the node.
func (n *Node) Journal() Fact {
	_, f := n.List(journalDir)
	return f
}

// IsBound reports whether the plugin keeps the function bound without a claim.
func (n *Node) IsBound(a pci.Address) bool { return n.bound[a] }

// IsThisBoot reports whether the record was begun since the node's last start: bindings, group numbers and device nodes of another
// boot mean nothing.
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

// TenanciesAt returns the tenancies of the function. There is more than one if the journal contradicts itself.
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

// Records returns the claims' records, sorted by UID. Callers must not change them.
func (n *Node) Records() []*journal.Record { return n.records }

// AllRecords returns all records, including those of bindings without a claim, sorted by the names of their files. Callers must not
// change them.
func (n *Node) AllRecords() []*journal.Record { return n.journal }

// Record returns the record of the claim with the UID.
func (n *Node) Record(uid string) (*journal.Record, bool) {
	i, ok := slices.BinarySearchFunc(n.records, uid, func(r *journal.Record, uid string) int { return strings.Compare(r.ID(), uid) })
	if !ok {
		return nil, false
	}
	return n.records[i], true
}
