package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

const (
	functions = "sys/bus/pci/devices/"
	xeAdmin   = functions + "0000:c8:00.0/sriov_admin/vf1/"
	xeProfile = xeAdmin + "profile/"
	xeVF      = functions + "0000:c8:00.1/"
	gimPF     = functions + "0000:c1:00.0/"
	gimVF     = functions + "0000:c1:02.0/"
	allYes    = "yes\nyes\nyes\nyes\nyes\nyes\nyes\nyes\nyes\n"
)

// xe adds a discrete GPU of Intel's with a VF that nothing uses.
func (h *hardware) xe() {
	h.function("0000:c8:00.0", "xe", map[string]string{
		"virtfn0": "=> ../0000:c8:00.1", "sriov_admin/vf1/stop": "",
		"sriov_admin/vf1/profile/exec_quantum_ms": "7", "sriov_admin/vf1/profile/preempt_timeout_us": "0",
		"sriov_admin/vf1/profile/sched_priority": "[low] normal\n", "sriov_admin/vf1/profile/vram_quota": "8589934592",
	})
	h.function("0000:c8:00.1", "vfio-pci", map[string]string{"reset": ""})
}

// gim adds an MI300X with eight VFs, of which one is there and free.
func (h *hardware) gim() {
	h.put("sys/module/gim/parameters/vf_num", "8\n")
	h.function("0000:c1:00.0", "gim", map[string]string{
		"virtfn0": "=> ../0000:c1:02.0", "device": "0x74a1\n", "sriov_numvfs": "8\n",
		"spatial_partition_mode": "CPX\n", "memory_partition_mode": "memory_partition_mode: NPS4\nnuma_count: 1\n",
	})
	h.function("0000:c1:02.0", "vfio-pci", map[string]string{"reset": ""})
}

// amdSMI adds AMD's tool, which says how much memory each VF has.
func (h *hardware) amdSMI(memory string) {
	h.program("amd-smi", "#!/bin/sh\nprintf 'VF:\\n        FB_OFFSET: 256 MB\\n        FB_SIZE: "+memory+"\\n'\n")
}

// instead has a program answer something else while a condition of the shell holds.
func (h *hardware) instead(program, condition, answer string) {
	real, err := filepath.EvalSymlinks(filepath.Join("/usr/bin", program))
	if err != nil {
		h.t.Fatal(err)
	}
	h.program(program, "#!/bin/sh\nif "+condition+"; then "+answer+"; exit; fi\nexec "+real+" \"$@\"\n")
}

func (h *hardware) wantFiles(want map[string]string) {
	h.t.Helper()
	for name, content := range want {
		if got := h.read(name); got != content {
			h.t.Errorf("%s has %q, want %q", name, got, content)
		}
	}
}

// asFound are the values of the GPU of xe.
func asFound() map[string]string {
	return map[string]string{xeProfile + "exec_quantum_ms": "7", xeProfile + "preempt_timeout_us": "0", xeProfile + "vram_quota": "8589934592"}
}

// TestHardwareOfIntel is asked for each experiment, and has its values again.
func TestHardwareOfIntel(t *testing.T) {
	h := newHardware(t)
	h.xe()
	table, code := h.run(allYes, "--ask")
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	h.wantLines(table,
		"X4 as expected values of all VFs of 0000:c8:00.0 are readable; 1 of them set no bound of time",
		"X2 as expected exec_quantum_ms of VF 1 of 0000:c8:00.0 after 21 was written: 21", "X3 as expected",
		"X5 as expected preempt_timeout_us of VF 1 of 0000:c8:00.0 after 41003 was written: 41003", "X6 as expected",
		"X7 as expected", "the most that the node config permits after 100000 was written: 100000", "X8 as expected",
		"X9 as expected sched_priority of VF 1 of 0000:c8:00.0 after normal was written: normal", "X10 as expected sched_priority of VF 1 of 0000:c8:00.0 as found: low",
		"X11 as expected vram_quota of VF 1 of 0000:c8:00.0 after 4294967297 was written: 4294967297", "X12 as expected",
		"X13 as expected stop of 0000:c8:00.1: done", "X14 as expected", "X15 as expected bounds of time of 0000:c8:00.1 after its reset: 70")
	h.wantFiles(asFound())
	h.wantFiles(map[string]string{xeProfile + "sched_priority": "low", xeAdmin + "stop": "1", xeVF + "reset": "1"})
}

// TestHardwareOfIntelThatDiffers says what it saw, and has its values again.
func TestHardwareOfIntelThatDiffers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*hardware)
		code   int
		want   []string
	}{
		"rounded a little": {func(h *hardware) {
			h.instead("cat", `[ "$(head -c 9 "$1")" = 21 ]`, "echo 23")
		}, 0, []string{"X2 as expected exec_quantum_ms of VF 1 of 0000:c8:00.0 after 21 was written: 23"}},
		"rounded more": {func(h *hardware) {
			h.instead("cat", `[ "$(head -c 9 "$1")" = 21 ]`, "echo 24")
		}, 3, []string{"X2 differs exec_quantum_ms of VF 1 of 0000:c8:00.0 after 21 was written: 24, which is rounded by more than an eighth of 21", "X3 as expected"}},
		"taken as no limit": {func(h *hardware) {
			h.instead("cat", `[ "$(head -c 9 "$1")" = 100000 ]`, "echo 0")
		}, 3, []string{"X7 differs", "expected 100000, saw 0", "X8 as expected"}},
		"tiles with different values": {func(h *hardware) {
			h.instead("cat", `case $1 in */preempt_timeout_us) ;; *) false ;; esac`, "exit 1")
		}, 3, []string{"X4 differs values of VFs of 0000:c8:00.0 that are missing or have another form: vf1/preempt_timeout_us", "X5 differs preempt_timeout_us of VF 1 of 0000:c8:00.0 can't be read"}},
		"a fixed priority": {func(h *hardware) {
			if err := os.Chmod(filepath.Join(h.root, xeProfile+"sched_priority"), 0o444); err != nil {
				h.t.Fatal(err)
			}
		}, 0, []string{"X9 as expected sched_priority of VF 1 of 0000:c8:00.0 is fixed"}},
		"an integrated GPU": {func(h *hardware) { h.remove(xeProfile + "vram_quota") }, 0, []string{"X11 no hardware vram_quota of VF 1 of 0000:c8:00.0"}},
		"no stop":           {func(h *hardware) { h.remove(xeAdmin + "stop") }, 0, []string{"X13 no hardware stop of 0000:c8:00.1", "X14 as expected"}},
		"a stop that fails": {func(h *hardware) {
			h.remove(xeAdmin + "stop")
			h.put(xeAdmin+"stop/file", "")
		}, 3, []string{"X13 differs stop of 0000:c8:00.1: expected done, saw refused", "X14 as expected"}},
		"a reset that changes registers": {func(h *hardware) {
			h.instead("sha256sum", "[ -s "+filepath.Join(h.root, xeVF+"reset")+" ]", "echo 0000000000000000")
		}, 3, []string{"X14 differs reset of 0000:c8:00.1, after its stop if it has one, and its registers"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHardware(t)
			h.xe()
			found := asFound()
			c.change(h)
			table, code := h.run(allYes, "--ask")
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			h.wantLines(table, c.want...)
			for file, value := range found {
				if _, err := os.Stat(filepath.Join(h.root, file)); err == nil {
					h.wantFiles(map[string]string{file: value})
				}
			}
		})
	}
}

func (h *hardware) remove(name string) {
	h.t.Helper()
	if err := os.Remove(filepath.Join(h.root, name)); err != nil {
		h.t.Fatal(err)
	}
}

// TestHardwareThatIsInUse: nothing is done to a VF that a process or a driver of the host has, or where the answer is no.
func TestHardwareThatIsInUse(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*hardware)
		answers string
		want    []string
	}{
		"a process has it open": {func(h *hardware) { h.program("fuser", "#!/bin/sh\nexit 0\n") }, allYes, []string{"X2 not asked experiments with VFs of 0000:c8:00.0: a process has one of them", "A3 not asked reset VFs of 0000:c1:00.0"}},
		"a driver of the host has it": {func(h *hardware) {
			for vf, driver := range map[string]string{xeVF: "xe", gimVF: "amdgpu"} {
				h.remove(vf + "driver")
				h.put(vf+"driver", "=> ../../drivers/"+driver)
			}
		}, allYes, []string{"X11 not asked", "A3 not asked"}},
		"declined": {func(*hardware) {}, strings.Repeat("no\n", 9), []string{"X2 declined", "X5 declined", "X7 declined", "X9 declined", "X11 declined", "X13 declined", "A3 declined"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHardware(t)
			h.xe()
			h.gim()
			c.change(h)
			table, code := h.run(c.answers, "--ask")
			if code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			h.wantLines(table, c.want...)
			h.wantFiles(asFound())
			h.wantFiles(map[string]string{xeAdmin + "stop": "", xeVF + "reset": "", gimVF + "reset": ""})
		})
	}
}

// TestHardwareIsRestored when a signal ends the script in the middle of an experiment, right after it has shown a line. HUP is the end of an SSH
// session.
func TestHardwareIsRestored(t *testing.T) {
	for line, file := range map[string]string{
		"V3": vgpuDir + "nvidia/current_vgpu_type", "V8": vgpuDir + "nvidia/current_vgpu_type",
		"X2": xeProfile + "exec_quantum_ms", "X5": xeProfile + "preempt_timeout_us", "X7": xeProfile + "exec_quantum_ms",
		"X9": xeProfile + "sched_priority", "X11": xeProfile + "vram_quota", "X13": xeVF + "reset",
	} {
		t.Run(line, func(t *testing.T) {
			h := newHardware(t)
			h.vgpu()
			h.xe()
			signal, exit := "TERM", 143
			if line == "X7" || line == "X13" {
				signal, exit = "HUP", 129
			}
			h.program("tee", "#!/bin/sh\nline=$(cat)\necho \"$line\"\ncase $line in '"+line+" '*) kill -"+signal+" $(cat "+filepath.Join(h.bin, "pid")+") ;; esac\n")
			want := map[string]string{"V3": "0", "V8": "0", "X9": "low", "X13": "1"}[line]
			if want == "" {
				want = h.read(file)
			}
			table, code := h.script(allYes, "--ask", "--file", filepath.Join(t.TempDir(), "none"))
			if code != exit {
				t.Errorf("exit code %d, want %d; output:\n%s", code, exit, table)
			}
			h.wantFiles(map[string]string{file: want})
		})
	}
}

// TestHardwareOfAMDsVFs resets them, and compares their memory.
func TestHardwareOfAMDsVFs(t *testing.T) {
	h := newHardware(t)
	h.gim()
	h.amdSMI("24507 MB")
	table, code := h.run(allYes, "--ask")
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	h.wantLines(table, "A3 as expected three resets of 0000:c1:02.0, and its registers: done", "A4 as expected partition of 0000:c1:00.0 after resets of its VFs: CPX/NPS4",
		"A5 as expected", "A6 as expected 0000:c1:02.0 has 24507 MB, and the plugin publishes 24576")
	h.wantFiles(map[string]string{gimVF + "reset": "1"})
}

// TestHardwareOfAMDsVFsThatDiffers: a GPU that is another one after a reset of its VF, and memory that is not the published one.
func TestHardwareOfAMDsVFsThatDiffers(t *testing.T) {
	h := newHardware(t)
	h.gim()
	h.amdSMI("196056 MB")
	reset := "[ -s " + filepath.Join(h.root, gimVF+"reset") + " ]"
	h.instead("sha256sum", reset, "echo 0000000000000000")
	h.instead("od", reset, "echo ' ff ff ff ff'")
	h.instead("cat", "case $1 in */spatial_partition_mode) "+reset+" ;; *) false ;; esac", "echo SPX")
	table, code := h.run(allYes, "--ask")
	if code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	h.wantLines(table, "A3 differs three resets of 0000:c1:02.0", "A4 differs partition of 0000:c1:00.0 after resets of its VFs: expected CPX/NPS4, saw SPX/NPS4",
		"A5 differs", "saw ffffffff", "A6 differs 0000:c1:02.0 has 196056 MB, and the plugin publishes 24576")
	h.amdSMI("N/A")
	table, _ = h.run("")
	h.wantLines(table, "A6 differs 0000:c1:02.0 has an unknown number of MB")
}

// TestHardwareKnowsThePublishedMemory of each model and number of VFs, as the plugin does.
func TestHardwareKnowsThePublishedMemory(t *testing.T) {
	for _, c := range []struct {
		id  pci.ID
		vfs []int
	}{{0x74a1, []int{1, 4, 8}}, {0x74a5, []int{1, 8}}, {0x75a0, []int{1, 2, 8}}, {0x75a3, []int{2}}, {0x740f, []int{1, 2}}, {0x7460, []int{12}}} {
		for _, vfs := range c.vfs {
			h := newHardware(t)
			h.gim()
			for name, content := range map[string]string{"device": fmt.Sprintf("0x%s\n", c.id), "sriov_numvfs": fmt.Sprintf("%d\n", vfs)} {
				h.put(gimPF+name, content)
			}
			memory := vfMemory(t, c.id, vfs)
			want := "A6 no hardware"
			if memory > 0 {
				h.amdSMI(fmt.Sprintf("%d MB", memory))
				want = fmt.Sprintf("A6 as expected 0000:c1:02.0 has %d MB, and the plugin publishes %[1]d", memory)
			}
			table, _ := h.run("")
			h.wantLines(table, want)
		}
	}
}

// vfMemory returns what the plugin publishes for a VF, in MiB.
func vfMemory(t *testing.T, id pci.ID, vfs int) uint64 {
	t.Helper()
	address := func(text string) pci.Address {
		a, err := pci.ParseAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	pf := device.Function{Address: address("0000:c1:00.0"), Type: device.GPU, Vendor: pci.VendorAMD, Device: id, Driver: "gim", PF: &device.PF{NumVFs: vfs}}
	vf := device.Function{Address: address("0000:c1:02.0"), Type: device.GPUVF, Vendor: pci.VendorAMD, VF: &device.VF{PF: pf.Address}}
	size, _ := (&device.Snapshot{Functions: []device.Function{pf, vf}}).GPUMemory(&vf)
	return size >> 20
}

// TestHardwareIsReset four times, and has the registers that it had.
func TestHardwareIsReset(t *testing.T) {
	h := newHardware(t)
	h.function("0000:17:00.0", "vfio-pci", map[string]string{"class": "0x030200\n", "reset": "", "reset_method": "flr bus\n"})
	table, code := h.run("yes\n", "--ask")
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	h.wantLines(table, "reset 0000:17:00.0 four times by flr", "R1 as expected", "R2 as expected")
	h.instead("sha256sum", "[ -s "+filepath.Join(h.root, functions+"0000:17:00.0/reset")+" ]", "echo 0000000000000000")
	h.put(functions+"0000:17:00.0/reset", "")
	table, code = h.run("yes\n", "--ask")
	if code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	h.wantLines(table, "R1 differs", "R2 differs")
}
