package fabric_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

func nvidiaMap() *fabric.Map { return fabrictest.Map("HGX", fabrictest.Buses()...) }

func present(m *fabric.Map) []fabric.Present {
	var all []fabric.Present
	for _, p := range m.Places {
		all = append(all, fabric.Present{Address: p.Address, Serial: p.Serial})
	}
	return all
}

func addresses(buses ...uint8) []pci.Address {
	all := make([]pci.Address, len(buses))
	for i, b := range buses {
		all[i] = pci.Address{Bus: b}
	}
	return all
}

// TestBoard finds partitions by their functions, whatever the order of the addresses.
func TestBoard(t *testing.T) {
	b, err := fabric.NewBoard(fabrictest.H100(), nvidiaMap())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := b.Name(), "0000-86-00-0"; got != want {
		t.Errorf("name %q, want %q", got, want)
	}
	p := b.Partition(addresses(0x87, 0x86))
	if p == nil || p.ID != 3 {
		t.Fatalf("partition of modules 1 and 3: got %v, want 3", p)
	}
	if diff := gocmp.Diff(addresses(0x86, 0x87), b.Addresses(p)); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	// By the addresses 0f and 10 are neighbors, and no partition has both: they are modules 5 and 7, which is one. 10 and 41 is none.
	if p := b.Partition(addresses(0x10, 0x41)); p != nil {
		t.Errorf("modules 7 and 6 are partition %s, want none", p)
	}
	if p := b.Partition(addresses(0x86, 0x99)); p != nil {
		t.Errorf("with a GPU that is not on the board: partition %s, want none", p)
	}
}

// TestBoardIsNotGuessed: without a map, and with one that does not agree with Fabric Manager, there is no board.
func TestBoardIsNotGuessed(t *testing.T) {
	filled := func(address, uuid string) fabric.List {
		p := fabrictest.Partition(7, 1)
		p.GPUs[0].Address, p.GPUs[0].UUID = address, uuid
		return fabric.List{p}
	}
	named := &fabric.Map{Places: []fabric.Place{{Module: 1, Address: pci.Address{Bus: 0x86}, UUID: "GPU-1"}}}
	for name, c := range map[string]struct {
		list fabric.List
		m    *fabric.Map
		want string
	}{
		"no map":                  {fabrictest.H100(), nil, "no map says which PCI function module 1 is"},
		"zeros are no address":    {filled("00000000:00:00.0", ""), nil, "no map says which PCI function module 1 is"},
		"a module is missing":     {fabrictest.H100(), &fabric.Map{Places: nvidiaMap().Places[:7]}, "no map says which PCI function module 8 is"},
		"A100 says the addresses": {filled("00000000:86:00.0", "GPU-1"), nil, ""},
		"both agree":              {filled("00000000:86:00.0", "GPU-1"), named, ""},
		"another address":         {filled("00000000:87:00.0", ""), named, "the map of modules has module 1 at 0000:86:00.0, and Fabric Manager at 0000:87:00.0"},
		"another UUID":            {filled("", "GPU-2"), named, "the map of modules has module 1 as GPU-1, and Fabric Manager as GPU-2"},
		"no PCI address":          {filled("86:00", ""), nil, `Fabric Manager has module 1 at "86:00", which is no PCI address`},
		"two addresses of one module": {append(filled("00000000:86:00.0", ""), func() fabric.Partition {
			p := fabrictest.Partition(3, 1, 2)
			p.GPUs[0].Address, p.GPUs[1].Address = "00000000:87:00.0", "00000000:88:00.0"
			return p
		}()), nil, "Fabric Manager has module 1 at 0000:86:00.0, and at 0000:87:00.0"},
		"two modules at one address": {fabrictest.H100()[3:4], &fabric.Map{Places: []fabric.Place{
			{Module: 1, Address: pci.Address{Bus: 0x86}}, {Module: 3, Address: pci.Address{Bus: 0x86}},
		}}, "modules 1 and 3 are both at 0000:86:00.0"},
		"a list that can't be": {fabric.List{fabrictest.Partition(1, 1, 1)}, nvidiaMap(), "Fabric Manager's list of partitions can't be right: partition 1 has module 1 twice"},
	} {
		b, err := fabric.NewBoard(c.list, c.m)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || err.Error() != c.want || b != nil):
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// TestMapOfAnotherMachine is refused: a board or a GPU that was replaced can be wired in another way.
func TestMapOfAnotherMachine(t *testing.T) {
	m := nvidiaMap()
	m.Places[2].Serial = "ab"
	for name, c := range map[string]struct {
		product string
		change  func([]fabric.Present) []fabric.Present
		want    string
	}{
		"the same":        {"HGX", nil, ""},
		"unknown product": {"", nil, ""},
		"another product": {"DGX", nil, `the map of modules is of a "HGX", and this machine is a "DGX"`},
		"a GPU is gone": {
			"HGX", func(p []fabric.Present) []fabric.Present { return p[1:] },
			"the map of modules has module 1 at 0000:86:00.0, where this node has no GPU of NVIDIA",
		},
		"another GPU": {
			"HGX", func(p []fabric.Present) []fabric.Present { p[2].Serial = "cd"; return p },
			"the map of modules has the GPU with serial number ab at 0000:87:00.0, and now cd is there",
		},
		"a serial number that can't be read": {"HGX", func(p []fabric.Present) []fabric.Present { p[2].Serial = ""; return p }, ""},
	} {
		gpus := present(m)
		if c.change != nil {
			gpus = c.change(gpus)
		}
		err := m.Check(c.product, gpus)
		if got := text(err); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	m.Places[1].Module = 1
	if got, want := text(m.Check("HGX", present(m))), "the map of modules has module 1 or 0000:b8:00.0 twice"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// order lists the modules of the partitions of a size, in the board's order.
func order(t *testing.T, l fabric.List, size int) [][]int {
	t.Helper()
	b, err := fabric.NewBoard(l, nvidiaMap())
	if err != nil {
		t.Fatal(err)
	}
	var all [][]int
	for _, p := range b.Partitions() {
		if len(p.GPUs) == size {
			all = append(all, p.Modules())
		}
	}
	return all
}

// TestOrder keeps halves whole, by the layout that the list has.
func TestOrder(t *testing.T) {
	for _, c := range []struct {
		name string
		list fabric.List
		size int
		want [][]int
	}{
		{"H100, one GPU", fabrictest.H100(), 1, [][]int{{1}, {3}, {2}, {4}, {5}, {7}, {6}, {8}}},
		{"H100, two GPUs", fabrictest.H100(), 2, [][]int{{1, 3}, {2, 4}, {5, 7}, {6, 8}}},
		{"H100, four GPUs", fabrictest.H100(), 4, [][]int{{5, 6, 7, 8}, {1, 2, 3, 4}}},
		{"B200, one GPU", fabrictest.B200(), 1, [][]int{{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}}},
		{"B200, two GPUs", fabrictest.B200(), 2, [][]int{{1, 2}, {3, 4}, {5, 6}, {7, 8}}},
	} {
		if diff := gocmp.Diff(c.want, order(t, c.list, c.size)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestOrderKeepsHalvesWhole compares the order with that of Fabric Manager's list, which is by modules, over random arrivals and
// departures: first fit in both. What is asked for is the same, so the number of claims that find no partition tells the fragmentation.
func TestOrderKeepsHalvesWhole(t *testing.T) {
	const arrivals = 10_000
	b, err := fabric.NewBoard(fabrictest.H100(), nvidiaMap())
	if err != nil {
		t.Fatal(err)
	}
	refused, naively := play(b.Partitions(), arrivals), play(fabrictest.H100(), arrivals)
	t.Logf("of %d claims, %d found no partition in our order, and %d in the order of the list", arrivals, refused, naively)
	if 100*refused > 95*naively {
		t.Errorf("%d claims found no partition, want at least 5 %% fewer than the %d in the order of the list", refused, naively)
	}
}

// play returns how many of the claims found no free partition of their size.
func play(l fabric.List, arrivals int) (refused int) {
	random := rand.New(rand.NewPCG(1, 2))
	type tenant struct {
		p    *fabric.Partition
		ends int
	}
	var tenants []tenant
	for now := range arrivals {
		tenants = slices.DeleteFunc(tenants, func(x tenant) bool { return x.ends <= now })
		size := []int{1, 1, 1, 1, 2, 2, 4}[random.IntN(7)]
		ends := now + 1 + random.IntN(5)
		i := slices.IndexFunc(l, func(p fabric.Partition) bool {
			return len(p.GPUs) == size && !slices.ContainsFunc(tenants, func(x tenant) bool { return x.p.Overlaps(&p) })
		})
		if i < 0 {
			refused++
			continue
		}
		tenants = append(tenants, tenant{&l[i], ends})
	}
	return refused
}

// TestPosition is the order of single GPUs.
func TestPosition(t *testing.T) {
	b, err := fabric.NewBoard(fabrictest.H100(), nvidiaMap())
	if err != nil {
		t.Fatal(err)
	}
	modules := []int{1, 2, 3, 4, 5, 6, 7, 8}
	slices.SortFunc(modules, func(x, y int) int { return cmp.Compare(b.Position(x), b.Position(y)) })
	if diff := gocmp.Diff([]int{1, 3, 2, 4, 5, 7, 6, 8}, modules); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if b.Position(99) <= b.Position(8) {
		t.Error("a GPU without a partition of its own is not last")
	}
}

// TestFiles reads what a node keeps, and nothing that is not whole.
func TestFiles(t *testing.T) {
	m, err := fabric.Parse[fabric.Map]([]byte(`{"product":"HGX","modules":[{"module":1,"address":"0000:86:00.0","serialNumber":"ab"}]}`))
	want := &fabric.Map{Product: "HGX", Places: []fabric.Place{{Module: 1, Address: pci.Address{Bus: 0x86}, Serial: "ab"}}}
	if diff := gocmp.Diff(want, m); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{"", "{", `{"moduls":[]}`, `{"modules":[]} {}`, `{"modules":[{"address":"86"}]}`} {
		if _, err := fabric.Parse[fabric.Map]([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
	if s, err := fabric.Parse[fabric.State]([]byte(`{"partitions":[{"id":3,"active":true,"gpus":[{"module":1},{"module":3}]}],"away":"gone"}`)); err != nil || !strings.HasPrefix(s.Away, "gone") || !s.Partitions[0].Active {
		t.Errorf("%+v, %v", s, err)
	}
}
