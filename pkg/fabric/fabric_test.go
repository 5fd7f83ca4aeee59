package fabric_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/fabrictest"
)

func active(p fabric.Partition) fabric.Partition {
	p.Active = true
	return p
}

// with returns a list of one GPU, changed.
func with(change func(*fabric.GPU)) fabric.List {
	l := fabric.List{fabrictest.Partition(1, 1)}
	change(&l[0].GPUs[0])
	return l
}

// TestLists refuses each list that can't be right, and no other.
func TestLists(t *testing.T) {
	var many fabric.List
	for i := range fabric.MaxPartitions + 1 {
		many = append(many, fabrictest.Partition(i, i+1))
	}
	var wide []int
	for i := range fabric.MaxGPUs + 1 {
		wide = append(wide, i+1)
	}
	for _, tt := range []struct {
		name string
		list fabric.List
		want string
	}{
		{"none", nil, ""},
		{"as many as there is room for", many[:fabric.MaxPartitions], ""},
		{"two active that share nothing", fabric.List{active(fabrictest.Partition(3, 1, 3)), active(fabrictest.Partition(4, 2, 4)), fabrictest.Partition(1, 1, 2, 3, 4)}, ""},
		{"65 partitions", many, "it has 65 partitions, and the API has room for 64"},
		{"17 GPUs", fabric.List{fabrictest.Partition(0, wide...)}, "partition 0 has 17 GPUs, and the API has room for 1 to 16"},
		{"no GPU", fabric.List{fabrictest.Partition(5)}, "partition 5 has 0 GPUs, and the API has room for 1 to 16"},
		{"a GPU twice", fabric.List{fabrictest.Partition(3, 1, 1)}, "partition 3 has module 1 twice"},
		{"a number twice", fabric.List{fabrictest.Partition(3, 1, 3), fabrictest.Partition(3, 2, 4)}, "it has partition 3 twice"},
		{"the same GPUs twice", fabric.List{fabrictest.Partition(3, 1, 3), fabrictest.Partition(4, 3, 1)}, "partitions 3 and 4 have the same GPUs (modules 1, 3)"},
		{"active ones that overlap", fabric.List{active(fabrictest.Partition(3, 1, 3)), active(fabrictest.Partition(7, 1))}, "partitions 3 and 7 are active, and both have module 1"},
		{"a negative number", fabric.List{fabrictest.Partition(-1, 1)}, "partition -1 has 1 GPUs, and the API has room for 1 to 16"},
		{"a text longer than the API's", with(func(g *fabric.GPU) { g.UUID = strings.Repeat("x", 81) }), "partition 1 has values of module 1 that the API can't have"},
		{"a text for a terminal", with(func(g *fabric.GPU) { g.UUID = "\x1b[2J" }), "partition 1 has values of module 1 that the API can't have"},
		{"a long address", with(func(g *fabric.GPU) { g.Address = strings.Repeat("0", 33) }), "partition 1 has values of module 1 that the API can't have"},
		{"fewer than no links", with(func(g *fabric.GPU) { g.Links = -1 }), "partition 1 has values of module 1 that the API can't have"},
		{"the API's longest texts", with(func(g *fabric.GPU) { g.UUID, g.Address = strings.Repeat("x", 80), strings.Repeat("0", 32) }), ""},
		{"a module that no board has", fabric.List{fabrictest.Partition(1, 4294)}, "partition 1 has module 4294"},
	} {
		err := tt.list.Check()
		var got string
		if e, ok := errors.AsType[*fabric.ListError](err); ok {
			got = e.Text
		}
		if got != tt.want || (err == nil) != (tt.want == "") {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestValue reads what records have of a partition, and nothing else.
func TestValue(t *testing.T) {
	p := fabrictest.Partition(3, 3, 1)
	if got, want := p.String(), "3 (modules 1, 3)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if id, modules, ok := fabric.ParseValue(p.String()); id != 3 || !slices.Equal(modules, []int{1, 3}) || !ok {
		t.Errorf("got %d, %v, %t, want 3, [1 3], true", id, modules, ok)
	}
	for _, s := range []string{"", "none", "3", "3 (modules )", "3 (modules 1,3)", "x (modules 1)", "3 (modules 1) ", "03 (modules 1)"} {
		if _, _, ok := fabric.ParseValue(s); ok {
			t.Errorf("%q was read as a partition", s)
		}
	}
}

// TestRemedies is the table of what follows from each code.
func TestRemedies(t *testing.T) {
	calls := []fabric.Call{fabric.CallList, fabric.CallActivate, fabric.CallDeactivate, fabric.CallReplay}
	for code, want := range map[fabric.Code][4]fabric.Remedy{
		fabric.BadParameter:       {fabric.Refuse, fabric.Refuse, fabric.Refuse, fabric.Refuse},
		fabric.GenericError:       {fabric.Refuse, fabric.Refuse, fabric.Refuse, fabric.Refuse},
		fabric.NotSupported:       {fabric.Refuse, fabric.Refuse, fabric.Refuse, fabric.Refuse},
		fabric.Uninitialized:      {fabric.Wait, fabric.Wait, fabric.Done, fabric.Wait},
		fabric.Timeout:            {fabric.Refuse, fabric.Repeat, fabric.Refuse, fabric.Refuse},
		fabric.VersionMismatch:    {fabric.Refuse, fabric.Refuse, fabric.Refuse, fabric.Refuse},
		fabric.InUse:              {fabric.Compare, fabric.Compare, fabric.Compare, fabric.Compare},
		fabric.NotConfigured:      {fabric.Wait, fabric.Wait, fabric.Wait, fabric.Wait},
		fabric.ConnectionNotValid: {fabric.Wait, fabric.Wait, fabric.Wait, fabric.Wait},
		fabric.NVLinkError:        {fabric.Refuse, fabric.Repeat, fabric.Refuse, fabric.Refuse},
		-17:                       {fabric.Refuse, fabric.Refuse, fabric.Refuse, fabric.Refuse},
	} {
		for i, call := range calls {
			if got := code.After(call); got != want[i] {
				t.Errorf("%s after %s: got remedy %d, want %d", code, call, got, want[i])
			}
		}
	}
}

// TestCodeError names the code as NVIDIA's documents do, and says what to do.
func TestCodeError(t *testing.T) {
	err := &fabric.CodeError{Call: fabric.CallActivate, Code: fabric.NVLinkError}
	if got, want := err.Error(), "Fabric Manager answers activate with FM_ST_NVLINK_ERROR: the NVLinks of a GPU did not train; the kernel's log has SXid or Xid lines"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	err.Code = -17
	if got, want := err.Error(), "Fabric Manager answers activate with -17: its log (/var/log/fabricmanager.log) says why"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestSameReason ignores what changes with each call, and nothing else.
func TestSameReason(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"", "", true},
		{"", "no socket", false},
		{"no socket", "no  socket", true},
		{"pid 4711 at 09:00:01: refused", "pid 12 at 09:00:11: refused", true},
		{"at 0x7fe01c: refused", "at 0x9: refused", true},
		{"pid 4711: refused", "pid 4711: no such file", false},
		{"answers list with FM_ST_IN_USE", "answers list with FM_ST_TIMEOUT", false},
	} {
		if got := fabric.SameReason(c.a, c.b); got != c.want {
			t.Errorf("SameReason(%q, %q) = %t, want %t", c.a, c.b, got, c.want)
		}
	}
}
