package prepare_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/nodeconfig"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
	"github.com/kata-vfio/kata-vfio/pkg/prepare/effects"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/rule/ruletest"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/sysfstest"
)

// other is the UID of a second claim.
const other = "7d2f1c90"

// unbinds reports whether a write takes a function from a driver.
func unbinds(path string) bool { return strings.HasSuffix(path, "/unbind") }

// probes reports whether a write offers a function to the drivers.
func probes(path string) bool { return strings.HasSuffix(path, "/drivers_probe") }

// sets reports whether a write sets driver_override.
func sets(path string) bool { return strings.HasSuffix(path, "/driver_override") }

// state is all of a node that a claim may change.
type state struct {
	Bindings map[pci.Address]plan.Binding
	Records  []string
	Specs    []string
}

func (w *world) state() state {
	w.t.Helper()
	s := state{Bindings: w.bindings()}
	records, errs := w.records.List()
	for _, rec := range records {
		s.Records = append(s.Records, rec.ID())
	}
	if len(errs) > 0 {
		w.t.Fatal(errs)
	}
	var err error
	if s.Specs, err = w.specs.Claims(); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// unchanged checks that the node is as it was.
func (w *world) unchanged(before state) {
	w.t.Helper()
	if diff := cmp.Diff(before, w.state()); diff != "" {
		w.t.Errorf("the node is not as it was (-want as before +got):\n%s", diff)
	}
}

// says checks that an error is there and has all the words.
func says(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error; want one that says %q", words)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error is %q, want it to say %q", err, word)
		}
	}
}

// nodeConfig returns a valid node config with the rules.
func nodeConfig(rules ...v1alpha1.DeviceRule) *v1alpha1.NodeConfig {
	c := &v1alpha1.NodeConfig{Devices: rules}
	c.Default()
	return c
}

func matchAddress(a pci.Address) v1alpha1.DeviceRule {
	return v1alpha1.DeviceRule{Name: "by-address", Match: v1alpha1.DeviceMatch{Addresses: []pci.Address{a}}}
}

// A refusal is a claim that can't be had, and what its owner reads.
type refusal struct {
	build func(*world) pci.Address // the function that is claimed
	code  rule.Code
	words []string
}

func refusals() map[string]refusal {
	absent := pci.Address{Bus: 0xee}
	return map[string]refusal{
		"absent": {
			func(*world) pci.Address { return absent }, rule.Absent, []string{"0000:ee:00.0", "delete the claim"},
		},
		"held by another claim": {
			func(w *world) pci.Address {
				gpu := w.k.AddGPU(0x3b)
				w.mustPrepare(w.request(other, gpu))
				return gpu
			}, rule.Held, []string{"0000:3b:00.0 is held by claim tenant-a/" + other, "status"},
		},
		"a group mate held by another claim": {
			func(w *world) pci.Address {
				gpu, audio := w.k.AddGPUWithAudio(0x62, 15)
				w.node = nodeConfig(matchAddress(gpu), matchAddress(audio))
				w.mustPrepare(w.request(other, gpu))
				return audio
			}, rule.Held, []string{"is held by claim tenant-a/" + other},
		},
		"not ours by default": {
			func(w *world) pci.Address { return w.k.AddNVMe(0x41) }, rule.NotOurs, []string{"0000:41:00.0", "driver nvme", "NodeConfig"},
		},
		"not ours since the config matches nothing": {
			func(w *world) pci.Address {
				w.node = nodeConfig(matchAddress(absent))
				return w.k.AddGPU(0x3b)
			}, rule.NotOurs, []string{"0000:3b:00.0", "driver nvidia", "NodeConfig"},
		},
		"forbidden whatever the config says": {
			func(w *world) pci.Address {
				disk := w.k.AddNVMe(0x41)
				w.k.AddMount("nvme0n1", "/data")
				w.node = nodeConfig(matchAddress(disk))
				return disk
			}, rule.Forbidden, []string{"0000:41:00.0", "driver nvme", "/data", "stop that use"},
		},
		"a busy group mate": {
			func(w *world) pci.Address {
				gpu, _ := w.k.AddWithBusyMate(0x50, 20)
				return gpu
			}, rule.GroupNotViable, []string{"0000:50:01.0 (nvme)", "group 20", "/var/lib/data", "stop that use"},
		},
		"a bridge driver in the group": {
			func(w *world) pci.Address {
				gpu, _ := w.k.AddBehindBridge(0x60, 30)
				return gpu
			}, rule.GroupNotViable, []string{"shpchp"},
		},
		"a function that does not answer": {
			func(w *world) pci.Address {
				gpu := w.k.AddGPU(0x3b)
				w.k.SetConfig(gpu, 0, []byte(strings.Repeat("\xff", 256))...)
				return gpu
			}, rule.ConfigSpaceDead, []string{"0000:3b:00.0", "all ones"},
		},
	}
}

// TestRefusedClaimTouchesNothing: a claim that can't be had is refused with
// culprit, driver and the way out, before the first write.
func TestRefusedClaimTouchesNothing(t *testing.T) {
	for name, tt := range refusals() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			addr := tt.build(w)
			before, writes := w.state(), len(w.k.Writes())
			_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, addr))
			if refused := wantRefused(t, err); refused != nil && !refused.Has(tt.code) {
				t.Errorf("refused by %v, want %s", refused, tt.code)
			}
			ruletest.RefusedAt(t, rule.AtPrepare, tt.code)
			says(t, err, tt.words...)
			w.unchanged(before)
			if now := w.k.Writes(); len(now) > writes {
				t.Errorf("wrote %v, want nothing", now[writes:])
			}
		})
	}
}

// TestConfigProblems: where config and node do not fit, the selection says so
// even before somebody claims anything.
func TestConfigProblems(t *testing.T) {
	w := newWorld(t)
	disk := w.k.AddNVMe(0x41)
	w.k.AddMount("nvme0n1", "/data")
	absent := pci.Address{Bus: 0xee}
	snap, err := (&scanner{w.fs}).Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		rule v1alpha1.DeviceRule
		word string
	}{
		"matches nothing": {matchAddress(absent), absent.String()},
		"forbidden":       {matchAddress(disk), disk.String()},
	} {
		problems := nodeconfig.Select(nodeConfig(tt.rule), snap).Problems()
		if len(problems) != 1 || !strings.Contains(problems[0].Text, tt.word) || problems[0].Fix == "" {
			t.Errorf("%s: problems %+v, want one that names %s and a fix", name, problems, tt.word)
		}
	}
}

// TestOneBadDeviceRefusesTheClaim: a claim is had as a whole or not at all, and
// every device that stands against it is named.
func TestOneBadDeviceRefusesTheClaim(t *testing.T) {
	w := newWorld(t)
	gpu, disk := w.k.AddGPU(0x3b), w.k.AddNVMe(0x41)
	before := w.state()
	_, err := w.plugin(nil).Prepare(t.Context(), w.request(uid, gpu, disk, pci.Address{Bus: 0xee}))
	says(t, err, "0000:41:00.0", "0000:ee:00.0")
	w.unchanged(before)
}

// lastWrites returns what was written since.
func lastWrites(w *world, since int) []sysfstest.Write { return w.k.Writes()[since:] }

// count returns how many events of a phase there were.
func (w *world) count(phase effects.Phase) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, e := range w.events {
		if e.Phase == phase {
			n++
		}
	}
	return n
}
