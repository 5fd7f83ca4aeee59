package facts

import (
	"encoding/json"
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

// Tenant is who has the function: the claim's namespace.
func (t *Tenancy) Tenant() string { return t.Record.Plan.Claim.Namespace }

// Claim names the claim: "namespace/name".
func (t *Tenancy) Claim() string {
	ref := t.Record.Plan.Claim
	if ref.Name == "" {
		return ref.UID
	}
	return ref.Namespace + "/" + ref.Name
}

const (
	journalDir = "var/lib/kata-vfio/journal"
	// publishedFile is what the plugin says of what it publishes: see [Published].
	publishedFile = "run/kata-vfio/published.json"
)

// Published is what the plugin writes to /run/kata-vfio/published.json whenever
// it publishes: the functions that can be allocated.
type Published struct {
	BootID  string        `json:"bootID"`
	Devices []pci.Address `json:"devices"`
}

// readTenancies reads the journal. A record that can't be read is kept as damaged:
// any function may be in it.
func (n *Node) readTenancies() {
	names, _ := n.List(journalDir)
	for _, name := range names {
		if strings.HasPrefix(name, ".") || !strings.HasSuffix(name, ".json") {
			continue
		}
		file := n.Read(path.Join(journalDir, name))
		if file.Status == Absent {
			continue // removed since it was listed
		}
		rec, err := journal.Decode([]byte(file.Value))
		if file.OK() && err != nil {
			file.Status, file.Err = Broken, err.Error()
		}
		if !file.OK() {
			n.Damaged = append(n.Damaged, file)
			continue
		}
		n.addRecord(rec)
	}
	slices.SortStableFunc(n.Tenancies, func(a, b Tenancy) int { return a.Address.Compare(b.Address) })
}

// addRecord adds what a claim has. A standing binding has no tenant, and a
// record of an earlier boot says where its functions were, which still counts.
func (n *Node) addRecord(rec *journal.Record) {
	if rec.Kind != journal.Claim {
		return
	}
	for _, fn := range rec.Plan.Functions {
		n.Tenancies = append(n.Tenancies, Tenancy{Address: fn.Address, Record: rec})
	}
}

// TenanciesOf returns the claims that have the function, more than one if the
// journal contradicts itself.
func (n *Node) TenanciesOf(a pci.Address) []Tenancy {
	first, _ := slices.BinarySearchFunc(n.Tenancies, a, func(t Tenancy, a pci.Address) int { return t.Address.Compare(a) })
	end := first
	for end < len(n.Tenancies) && n.Tenancies[end].Address == a {
		end++
	}
	return n.Tenancies[first:end]
}

// TenantsOf returns who has any of the functions, sorted, each once.
func (n *Node) TenantsOf(addrs ...pci.Address) []string {
	var tenants []string
	for _, a := range addrs {
		for _, t := range n.TenanciesOf(a) {
			tenants = append(tenants, t.Tenant())
		}
	}
	slices.Sort(tenants)
	return slices.Compact(tenants)
}

// Records returns the claims' records, each once, by UID.
func (n *Node) Records() []*journal.Record {
	var records []*journal.Record
	for _, t := range n.Tenancies {
		if !slices.Contains(records, t.Record) {
			records = append(records, t.Record)
		}
	}
	slices.SortFunc(records, func(a, b *journal.Record) int { return strings.Compare(a.ID(), b.ID()) })
	return records
}

// IsPublished reports whether the function can be allocated: the plugin says so,
// or a VFIO driver has it, or a claim.
func (n *Node) IsPublished(a pci.Address) bool { return n.published[a] }

func (n *Node) readPublished() {
	n.published = map[pci.Address]bool{}
	var said Published
	if f := n.Read(publishedFile); f.OK() && json.Unmarshal([]byte(f.Value), &said) == nil {
		for _, a := range said.Devices {
			n.published[a] = true
		}
	}
	for _, f := range n.Functions() {
		if len(n.TenanciesOf(f.Address)) > 0 || isVFIO(f) {
			n.published[f.Address] = true
		}
	}
}
