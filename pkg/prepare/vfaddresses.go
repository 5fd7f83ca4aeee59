package prepare

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/network/vf"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// takenAddressError says that a MAC address or a GUID is another's on this node.
type takenAddressError struct {
	setting        device.VFSetting
	address, owner string
}

func (e *takenAddressError) Error() string {
	return fmt.Sprintf("the %s %s is that of %s", e.setting, e.address, e.owner)
}

// addressTries is how many addresses are generated: a second one is as unlikely
// to be needed as to meet a given stranger among 2^46.
const addressTries = 8

// chooseAddresses generates the VF's MAC address or its GUIDs, or checks those
// that were given.
func (p *Preparer) chooseAddresses(rec *journal.Record, fn *plan.Function, others []string) error {
	var owners map[string]string
	for _, s := range device.VFAddresses() {
		given := fn.VF.Want.Value(s)
		if given == "" {
			continue
		}
		if owners == nil {
			var err error
			if owners, err = p.addressOwners(rec, fn, others); err != nil {
				return err
			}
		}
		if err := choose(rec, fn, s, owners); err != nil {
			return err
		}
	}
	return nil
}

// choose settles one of them, which must be nobody else's.
func choose(rec *journal.Record, fn *plan.Function, s device.VFSetting, owners map[string]string) error {
	given := fn.VF.Want.Value(s)
	for try := range addressTries {
		address := given
		if given == plan.Choose {
			address = generate(rec.ID(), fn, s, try)
		}
		owner, taken := owners[address]
		if !taken {
			fn.VF.Want.Take(s, &device.VFSettings{MAC: address, NodeGUID: address, PortGUID: address})
			return nil
		}
		if address == given {
			return &takenAddressError{setting: s, address: address, owner: owner}
		}
	}
	return fmt.Errorf("no free %s was found", s)
}

func generate(uid string, fn *plan.Function, s device.VFSetting, try int) string {
	if s == device.VFMAC {
		return plan.GenerateMAC(uid, fn.Address.String(), try)
	}
	return plan.GenerateGUID(uid, fn.Address.String(), try)
}

// addressOwners returns who has which address on the node: its own interfaces
// and RDMA devices, the other VFs of the PF, the claim's other VFs, and the VFs
// of other claims, whose interfaces are out of sight.
func (p *Preparer) addressOwners(rec *journal.Record, fn *plan.Function, others []string) (map[string]string, error) {
	owners := map[string]string{}
	records, _ := p.Journal.List() // what can't be read has kept its devices from everybody
	for _, o := range records {
		if o.ID() != rec.ID() && o.BootID == rec.BootID {
			enter(owners, o, fn, "another claim's VF")
		}
	}
	enter(owners, rec, fn, "another VF of this claim")
	for _, address := range others {
		owners[address] = "another VF of the PF"
	}
	if err := errors.Join(
		p.enterHost(owners, rec, "net", "address", "the node's interface"),
		p.enterHost(owners, rec, "infiniband", "node_guid", "the node's RDMA device"),
	); err != nil {
		return nil, err
	}
	for _, none := range []string{"", plan.Choose, "00:00:00:00:00:00", vf.NoGUID, allOnes} {
		delete(owners, none)
	}
	return owners, nil
}

// enter enters the addresses of a record's VFs other than fn.
func enter(owners map[string]string, rec *journal.Record, fn *plan.Function, owner string) {
	for i := range rec.Plan.Functions {
		o := &rec.Plan.Functions[i]
		if o.VF == nil || o.Address == fn.Address {
			continue
		}
		for _, s := range device.VFAddresses() {
			owners[o.VF.Want.Value(s)] = owner
		}
	}
}

// enterHost enters the addresses of what the node itself has in a class of sysfs.
func (p *Preparer) enterHost(owners map[string]string, rec *journal.Record, class, file, owner string) error {
	dir := path.Join("sys/class", class)
	there, err := p.FS.Exists(dir)
	var names []string
	if err == nil && there {
		names, err = p.FS.ReadDir(dir)
	}
	if err != nil {
		return fmt.Errorf("look for addresses of the node: %w", err)
	}
	for _, name := range names {
		text, err := p.FS.ReadString(path.Join(dir, name, file))
		if err == nil && !p.isOwn(rec, path.Join(dir, name)) {
			owners[addressOf(text)] = owner + " " + name
		}
	}
	return nil
}

// addressOf returns the address in a file of sysfs: a MAC address; the port GUID
// at the end of an IPoIB interface's 20 bytes; or a node GUID, which is written
// "0002:c903:0010:2030".
func addressOf(text string) string {
	const guid, ipoib = len(vf.NoGUID), 20*3 - 1
	digits := strings.ReplaceAll(text, ":", "")
	switch {
	case len(text) == ipoib:
		return text[ipoib-guid:]
	case len(digits) == 16 && len(text) != guid:
		var pairs []string
		for pair := range slices.Chunk([]byte(digits), 2) {
			pairs = append(pairs, string(pair))
		}
		return strings.Join(pairs, ":")
	}
	return text
}

// isOwn reports whether what a link of sys/class leads to is that of one of the
// record's functions, which loses it.
func (p *Preparer) isOwn(rec *journal.Record, name string) bool {
	link, err := p.FS.ReadLink(name) // .../0000:21:00.0/net/ens1f0
	owner := path.Base(path.Dir(path.Dir(link)))
	return err == nil && slices.ContainsFunc(rec.Plan.Functions, func(fn plan.Function) bool { return fn.Address.String() == owner })
}
