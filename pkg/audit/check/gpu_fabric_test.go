package check_test

import (
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/test/board"
)

const apiSocket = "FM_CMD_UNIX_SOCKET_PATH=/run/kata-vfio-fabric/fabricmanager.sock\n"

// fabricManagerFaults are faults of Fabric Manager's configuration.
func fabricManagerFaults() []fault {
	config := func(text string) func(*board.Tree) {
		return func(t *board.Tree) { t.Put(fabricConfig, "FABRIC_MODE=1\n"+text) }
	}
	owned := func(text, dir, mode string, uid uint32) func(*board.Tree) {
		return func(t *board.Tree) {
			config(text)(t)
			t.Own(dir, mode, uid, 0)
		}
	}
	return []fault{
		{rule: "GPU-016", about: "TCP on loopback", board: board.Fabric, plant: config("FM_CMD_BIND_INTERFACE=127.0.0.1\n")},
		{rule: "GPU-016", about: "a port is open all the same", board: board.Fabric, plant: func(t *board.Tree) {
			owned(apiSocket, "run/kata-vfio-fabric", "40700", 0)(t)
			t.Put("proc/1/net/tcp", "  sl  local_address rem_address   st\n   0: 0100007F:1A0A 00000000:0000 0A 00000000:00000000\n")
		}},
		{rule: "GPU-016", about: "ports that can't be read", board: board.Fabric, state: finding.Unknown, plant: func(t *board.Tree) {
			owned(apiSocket, "run/kata-vfio-fabric", "40700", 0)(t)
			hide(t, "proc/1/net/tcp")
		}},
		{rule: "GPU-003", about: "ports of IPv6 that can't be read", board: board.Fabric, state: finding.Unknown, plant: func(t *board.Tree) {
			hide(t, "proc/1/net/tcp6")
		}},
		{rule: "GPU-016", about: "everybody reaches the socket", board: board.Fabric, plant: func(t *board.Tree) {
			owned(apiSocket, "run/kata-vfio-fabric", "40755", 0)(t)
			t.Own("run", "40755", 0, 0)
		}},
		{rule: "GPU-016", about: "the directory of a user", board: board.Fabric, plant: func(t *board.Tree) {
			owned(apiSocket, "run/kata-vfio-fabric", "40700", 1000)(t)
			t.Own("run", "40755", 0, 0)
		}},
		{rule: "GPU-016", about: "a socket of root's", board: board.Fabric, state: finding.Pass, plant: owned(apiSocket, "run/kata-vfio-fabric", "40700", 0)},
		{rule: "GPU-016", about: "a directory that is not there", board: board.Fabric, state: finding.Unknown, plant: config(apiSocket)},
		{rule: "GPU-016", about: "no configuration to see", board: board.Fabric, state: finding.Unknown, plant: func(t *board.Tree) { t.Delete(fabricConfig) }},
		{rule: "GPU-016", about: "no partitions", board: board.Fabric, state: finding.NotApplicable, plant: func(t *board.Tree) { t.Put(fabricConfig, "FABRIC_MODE=0\n") }},
		{rule: "GPU-017", about: "one path for both", board: board.Fabric, plant: config(apiSocket + "UNIX_SOCKET_PATH=/run/kata-vfio-fabric//fabricmanager.sock\n")},
		{rule: "GPU-017", about: "the internal one alone", board: board.Fabric, plant: config("UNIX_SOCKET_PATH=/run/fm.sock\n")},
		{rule: "GPU-017", about: "two paths", board: board.Fabric, state: finding.Pass, plant: config(apiSocket + "UNIX_SOCKET_PATH=/run/fm.sock\n")},
		{rule: "GPU-018", about: "mode 0", board: board.Fabric, plant: func(t *board.Tree) {
			putState(t, &fabric.State{})
			t.Put(fabricConfig, "FABRIC_MODE=0\n")
		}},
		{rule: "GPU-018", about: "a map alone, and the default mode", board: board.Fabric, plant: func(t *board.Tree) {
			putMap(t, "gpu0")
			t.Put(fabricConfig, "")
		}},
		{rule: "GPU-018", about: "mode 1", board: board.Fabric, state: finding.Pass, plant: func(t *board.Tree) { putMap(t, "gpu0") }},
		{rule: "GPU-019", about: "the default", board: board.Fabric, plant: owned("", "tmp", "41777", 0)},
		{rule: "GPU-019", about: "a directory of a user", board: board.Fabric, plant: owned("STATE_FILE_NAME=/var/lib/fm/state\n", "var/lib/fm", "40755", 1000)},
		{rule: "GPU-019", about: "a directory of root", board: board.Fabric, state: finding.Pass, plant: func(t *board.Tree) {
			owned("STATE_FILE_NAME=/var/lib/fm/state\n", "var/lib/fm", "40755", 0)(t)
			t.Own("var/lib", "40755", 0, 0)
			t.Own("var", "40755", 0, 0)
		}},
		{rule: "GPU-020", about: "another version", board: board.Fabric, plant: func(t *board.Tree) { versions(t, "570.133.20", "570.133.20", "580.65.06") }},
		{rule: "GPU-020", about: "the last start counts", board: board.Fabric, state: finding.Pass, plant: func(t *board.Tree) { versions(t, "580.65.06", "570.133.20", "580.65.06") }},
		{rule: "GPU-020", about: "the last start of a long log counts", board: board.Fabric, state: finding.Pass, plant: func(t *board.Tree) {
			versions(t, "580.65.06", "570.133.20", strings.Repeat(" ", 5<<20), "580.65.06")
		}},
		{rule: "GPU-020", about: "no driver", board: board.Fabric, state: finding.NotApplicable, plant: config("")},
		{rule: "GPU-020", about: "no start in the log", board: board.Fabric, state: finding.Manual, plant: func(t *board.Tree) { versions(t, "580.65.06") }},
	}
}

// hide makes a file unreadable.
func hide(t *board.Tree, name string) {
	t.Delete(name)
	t.Put(name+"/x", "") // a directory
}

// versions has a driver, and a log of Fabric Managers that started.
func versions(t *board.Tree, driver string, starts ...string) {
	t.Put("sys/module/nvidia/version", driver+"\n")
	var log strings.Builder
	for _, v := range starts {
		log.WriteString("[Nov 20 2026 09:00:00] [INFO] [tid 4711] Fabric Manager version " + v + " is running with the following configuration options\n")
	}
	t.Put("var/log/fabricmanager.log", log.String())
}

// partitionFaults are active partitions that don't match the claims. Of the board, tenant t1 has gpu0 and gpu1, and t2 gpu2.
func partitionFaults() []fault {
	listed := func(partitions ...fabric.Partition) func(*board.Tree) {
		return func(t *board.Tree) {
			putMap(t, "gpu3", "gpu0", "gpu2", "gpu1")
			putState(t, &fabric.State{Partitions: partitions})
		}
	}
	// The same map in the node config, and another one that bootstrap captured.
	mapped := func(captured []string, partitions ...fabric.Partition) func(*board.Tree) {
		return func(t *board.Tree) {
			if captured != nil {
				putMap(t, captured...)
			}
			putState(t, &fabric.State{Partitions: partitions})
			config := "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\ndevices: [{match: {types: [gpu, vf]}}]\nfabric:\n  modules:\n"
			for i, name := range []string{"gpu3", "gpu0", "gpu2", "gpu1"} {
				config += fmt.Sprintf("  - {module: %d, address: %q}\n", i+1, t.Devices[name])
			}
			t.Put("etc/kata-vfio/node.yaml", config)
		}
	}
	// The modules of the map: gpu0 is module 2, gpu1 is 4, gpu2 is 3, and gpu3 is 1.
	pair, other, single, free := partition(1, true, 2, 4), partition(2, true, 1, 3), partition(7, true, 3), partition(8, true, 1)
	off := func(p fabric.Partition) fabric.Partition {
		p.Active = false
		return p
	}
	return []fault{
		{rule: "GPU-002", about: "a partition for each claim", board: board.Fabric, state: finding.Pass, plant: listed(pair, single, off(free), off(other))},
		{rule: "GPU-002", about: "single partitions of one claim", board: board.Fabric, state: finding.Pass, plant: listed(partition(3, true, 2), partition(4, true, 4), single)},
		{rule: "GPU-002", about: "joined with a free GPU", board: board.Fabric, plant: listed(pair, other, off(free))},
		{rule: "GPU-002", about: "joined with another tenant", board: board.Fabric, plant: listed(partition(0, true, 1, 2, 3, 4))},
		{rule: "GPU-002", about: "in no active partition", board: board.Fabric, plant: listed(pair, off(single), off(free))},
		{rule: "GPU-002", about: "in no active partition after the reset failed", board: board.Fabric, state: finding.Pass, plant: all(
			listed(pair, off(single), off(free)), became(journal.Quarantined, "t2", "serve"))},
		{rule: "GPU-002", about: "in no active partition yet", board: board.Fabric, state: finding.Pass, plant: all(
			listed(pair, off(single), off(free)), became(journal.Preparing, "t2", "serve"))},
		{rule: "GPU-002", about: "in no active partition since the reboot", board: board.Fabric, state: finding.Pass, plant: all(
			listed(pair, off(single), off(free)), stale("t2", "serve"))},
		{rule: "GPU-002", about: "in no partition", board: board.Fabric, plant: listed(pair, free)},
		{rule: "GPU-002", about: "Fabric Manager is away", board: board.Fabric, state: finding.Manual, plant: func(t *board.Tree) {
			listed()(t)
			putState(t, &fabric.State{Partitions: fabric.List{partition(0, true, 1, 2, 3, 4)}, Away: "no answer"})
		}},
		{rule: "GPU-002", about: "no map", board: board.Fabric, state: finding.Manual, plant: func(t *board.Tree) {
			putState(t, &fabric.State{Partitions: fabric.List{partition(0, true, 1, 2, 3, 4)}})
		}},
		{rule: "GPU-002", about: "the node config's map", board: board.Fabric, state: finding.Pass, plant: mapped(nil, pair, single, off(free))},
		{rule: "GPU-002", about: "joined with a free GPU, by the node config's map", board: board.Fabric, plant: mapped(nil, pair, other, off(free))},
		{rule: "GPU-002", about: "the node config's map before the captured one", board: board.Fabric, state: finding.Pass, plant: mapped([]string{"gpu0", "gpu2", "gpu1", "gpu3"}, pair, single, off(free))},
		{rule: "GPU-002", about: "a captured map of other GPUs", board: board.Fabric, state: finding.Manual, plant: func(t *board.Tree) {
			listed(pair, single, off(free))(t)
			putJSON(t, fabric.MapFile, &fabric.Map{Places: []fabric.Place{{Module: 1, Address: pci.Address{Bus: 0xfe}}}})
		}},
		{rule: "GPU-021", about: "nobody's partition, by the node config's map", board: board.Fabric, plant: mapped(nil, pair, single, free)},
		{rule: "GPU-021", about: "each is a claim's, by the node config's map", board: board.Fabric, state: finding.Pass, plant: mapped(nil, pair, single, off(free))},
		{rule: "GPU-002", about: "a file that is damaged", board: board.Fabric, state: finding.Manual, plant: func(t *board.Tree) { t.Put(fabric.StateFile, "{") }},
		{rule: "GPU-021", about: "nobody's partition", board: board.Fabric, plant: listed(pair, single, free)},
		{rule: "GPU-021", about: "each is a claim's", board: board.Fabric, state: finding.Pass, plant: listed(pair, single, off(free))},
		{rule: "GPU-021", about: "a file that is damaged", board: board.Fabric, state: finding.Unknown, plant: func(t *board.Tree) { t.Put(fabric.StateFile, "{") }},
	}
}

func partition(id int, active bool, modules ...int) fabric.Partition {
	p := fabric.Partition{ID: id, Active: active}
	for _, m := range modules {
		p.GPUs = append(p.GPUs, fabric.GPU{Module: m})
	}
	return p
}

func putState(t *board.Tree, s *fabric.State) { putJSON(t, fabric.StateFile, s) }

// putMap writes a map in which the devices are modules 1, 2 and so on.
func putMap(t *board.Tree, devices ...string) {
	var m fabric.Map
	for i, name := range devices {
		m.Places = append(m.Places, fabric.Place{Module: i + 1, Address: t.Devices[name]})
	}
	putJSON(t, fabric.MapFile, &m)
}
