package check_test

import (
	"encoding/json"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/sanitize"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/test/board"
)

func resetFaults() []fault { return append(methodFaults(), proofFaults()...) }

// setMethods writes a function's reset_method.
func setMethods(t *board.Tree, addr, methods string) {
	t.Put(sysfs.FunctionPath(t.Devices[addr])+"/reset_method", methods+"\n")
}

func methodFaults() []fault {
	return []fault{
		{rule: "RST-001", about: "none is left", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			setMethods(t, "gpu0", "")
		}},
		{rule: "RST-002", about: "power management alone", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			setMethods(t, "gpu0", "pm")
		}},
		{rule: "RST-002", about: "the method of a module from outside the kernel", board: board.AMD, device: "gpu0", state: finding.Manual, plant: func(t *board.Tree) {
			setMethods(t, "gpu0", "device_specific bus")
			t.Put("proc/modules", "vendor_reset 118784 0 - Live 0x0 (OE)\n")
		}},
		{rule: "RST-002", about: "a method of the kernel's own", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			setMethods(t, "gpu0", "device_specific bus")
			t.Put("proc/modules", "vendor_reset 118784 0 - Live 0x0 (OE)\n")
		}},
		{rule: "RST-002", about: "a vGPU, of whose memory no document speaks", board: board.Server, state: finding.Manual, plant: func(t *board.Tree) { t.Give("t3", "a", addVGPU(t)) }},
		{rule: "RST-003", about: "two tenants below one bridge", board: board.Server, device: "gpu1", plant: func(t *board.Tree) {
			rec := record(t, "t2", "serve")
			rec.Plan.Functions = rec.Plan.Functions[:0]
			t.Save(rec)
			t.Give("t2", "one", t.Devices["gpu1"])
			t.Give("t3", "two", t.Devices["gpu1/companion0"])
			setMethods(t, "gpu1", "")
		}},
		{rule: "RST-008", about: "all ones", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			ones := make([]byte, 4096)
			for i := range ones {
				ones[i] = 0xff
			}
			t.Put(sysfs.FunctionPath(t.Devices["gpu0"])+"/config", string(ones))
		}},
		{rule: "RST-013", about: "lanes are missing", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			for _, dir := range []string{"sys/devices/pci0000:3a/0000:3a:01.0", sysfs.FunctionPath(t.Devices["gpu0"])} {
				t.Put(dir+"/current_link_speed", "32.0 GT/s PCIe\n")
				t.Put(dir+"/max_link_speed", "32.0 GT/s PCIe\n")
				t.Put(dir+"/current_link_width", "4\n")
				t.Put(dir+"/max_link_width", "16\n")
			}
		}},
		{rule: "RST-007", about: "a GPU's memory", board: board.Server, state: finding.Manual, plant: func(*board.Tree) {}},
		{rule: "RST-014", about: "a stage measured what was accepted", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			withStage(t, "nvme")
			putProof(t, drive(t, 0x81), func(p *journal.SanitizeProof) {
				p.Firmware = []sanitize.Measurement{{Name: "firmware", Algorithm: sanitize.Version, Value: "1.0"}}
			})
		}},
		{rule: "RST-014", about: "a stage measured other firmware", board: board.Server, plant: func(t *board.Tree) {
			withStage(t, "nvme")
			a := drive(t, 0x81)
			putProof(t, a, func(p *journal.SanitizeProof) {
				was := sanitize.Measurement{Name: "firmware", Algorithm: sanitize.Version, Value: "1.0"}
				is := sanitize.Measurement{Name: "firmware", Algorithm: sanitize.Version, Value: "6.6"}
				p.Firmware, p.Changed = []sanitize.Measurement{is}, []sanitize.Change{{Name: "firmware", Was: &was, Is: &is}}
			})
		}},
		{rule: "RST-010", about: "a drive", board: board.Server, state: finding.Manual, plant: func(t *board.Tree) {
			t.Devices["nvme0"] = t.AddNVMe(0x81)
			t.Give("t4", "store", t.Devices["nvme0"])
		}},
	}
}

// putMark writes the plugin's mark of a function that had an address and an identity.
func putMark(t *board.Tree, at pci.Address, id device.Identity) {
	m := journal.ResetMark{Address: at, Identity: id, Claim: "earlier", Why: "the node went down before a reset", Since: "2026-11-21T08:00:00Z"}
	data, err := json.Marshal(m)
	if err != nil {
		t.TB.Fatal(err)
	}
	t.Put("var/lib/kata-vfio/journal/unclean/"+at.String()+".json", string(data)+"\n")
}

func identityOf(t *board.Tree, name string) device.Identity {
	s := t.Scan()
	f, ok := s.Function(t.Devices[name])
	if !ok {
		t.TB.Fatalf("there is no %s", name)
	}
	return s.Identify(f)
}

// earlier is the identity that a device had in another boot.
func earlier(t *board.Tree, name string) device.Identity {
	id := identityOf(t, name)
	id.BootID, id.Inode = "earlier", 1
	return id
}

// identified gives the record of t1/train the identity of its function, as the plugin does.
func identified(t *board.Tree, rec *journal.Record) {
	for i := range rec.Plan.Functions {
		if rec.Plan.Functions[i].Address == t.Devices["gpu0"] {
			rec.Plan.Functions[i].Identity = identityOf(t, "gpu0")
		}
	}
	t.Save(rec)
}

// changed is a fault in the record of t1/train.
func changed(rule, about string, change func(*board.Tree, *journal.Record)) fault {
	return fault{rule: rule, about: about, board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
		rec := record(t, "t1", "train")
		change(t, rec)
		t.Save(rec)
	}}
}

func proofFaults() []fault {
	proofOf := func(rec *journal.Record) isolation.Proof {
		return isolation.Proof{Reset: rec.Plan.Devices[0].Resets[0], Before: rec.Baseline, After: rec.Baseline, Milliseconds: 100}
	}
	return []fault{
		{rule: "RST-004", about: "marked as not clean", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			putMark(t, t.Devices["gpu0"], device.Identity{})
		}},
		{rule: "RST-004", about: "marked as not clean before its bus number changed", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			identified(t, record(t, "t1", "train"))
			putMark(t, pci.Address{Bus: 0xee}, earlier(t, "gpu0"))
		}},
		{rule: "RST-004", about: "the mark of another card that had its address", board: board.Server, state: finding.Pass, plant: func(t *board.Tree) {
			identified(t, record(t, "t1", "train"))
			former := earlier(t, "gpu0")
			former.Revision++
			putMark(t, t.Devices["gpu0"], former)
		}},
		{rule: "RST-004", about: "a mark that can't be read", board: board.Server, device: "gpu0", plant: func(t *board.Tree) {
			identified(t, record(t, "t1", "train"))
			t.Put("var/lib/kata-vfio/journal/unclean/"+t.Devices["gpu0"].String()+".json", "{")
		}},
		changed("RST-004", "no fingerprint from before", func(_ *board.Tree, rec *journal.Record) { rec.Baseline = nil }),
		changed("RST-004", "cleaned without a proof", func(_ *board.Tree, rec *journal.Record) { rec.State = journal.Cleaned }),
		changed("RST-004", "a proof without fingerprints", func(_ *board.Tree, rec *journal.Record) {
			rec.Proofs = []isolation.Proof{{Reset: rec.Plan.Devices[0].Resets[0]}}
		}),
		changed("RST-004", "other registers after the reset", func(_ *board.Tree, rec *journal.Record) {
			p := proofOf(rec)
			after := p.After[0]
			after.Digest = "00"
			p.After = []isolation.Fingerprint{after}
			rec.Proofs = []isolation.Proof{p}
		}),
		changed("RST-005", "still published", func(t *board.Tree, rec *journal.Record) {
			rec.State = journal.Quarantined
			t.Put("run/kata-vfio/published.json", `{"bootID":"`+rec.BootID+`","devices":["`+t.Devices["gpu0"].String()+`"]}`)
		}),
		changed("RST-005", "still held", func(_ *board.Tree, rec *journal.Record) { rec.State = journal.Quarantined }),
		changed("RST-005", "prepared for another", func(t *board.Tree, rec *journal.Record) {
			rec.State = journal.Quarantined
			t.Give("t3", "next", t.Devices["gpu0"])
		}),
		changed("RST-006", "by its function alone", func(_ *board.Tree, rec *journal.Record) {
			rec.Plan.Devices[0].Resets[0].Method = isolation.FLR
		}),
		changed("RST-006", "not at all", func(_ *board.Tree, rec *journal.Record) { rec.Plan.Devices[0].Resets = nil }),
	}
}
