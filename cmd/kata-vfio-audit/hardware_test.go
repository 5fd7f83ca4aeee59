package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// hardware is a node's tree, with an audit that writes an archive, for the script for hardware.
type hardware struct {
	t         *testing.T
	root, bin string
}

func newHardware(t *testing.T) *hardware {
	t.Helper()
	h := &hardware{t: t, root: t.TempDir(), bin: t.TempDir()}
	h.program("kata-vfio-audit", "#!/bin/sh\nfor last; do [ \"$file\" != next ] || : >\"$last\"; file=; [ \"$last\" != --file ] || file=next; done\n")
	h.program("fuser", "#!/bin/sh\nexit 1\n")
	h.put("proc/cmdline", "quiet")
	return h
}

func (h *hardware) program(name, text string) {
	h.t.Helper()
	if err := os.WriteFile(filepath.Join(h.bin, name), []byte(text), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

// put writes a file of the node; one that begins with "=> " is a link.
func (h *hardware) put(name, content string) {
	h.t.Helper()
	file := filepath.Join(h.root, name)
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if target, link := strings.CutPrefix(content, "=> "); link && err == nil {
		err = os.Symlink(target, file)
	} else if err == nil {
		err = os.WriteFile(file, []byte(content), 0o644)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// function adds a PCI function with a driver and files below its directory.
func (h *hardware) function(address, driver string, files map[string]string) {
	dir := "sys/bus/pci/devices/" + address + "/"
	h.put(dir+"driver", "=> ../../drivers/"+driver)
	h.put(dir+"config", "registers of "+address)
	for name, content := range files {
		h.put(dir+name, content)
	}
}

// run returns the table and the exit code. The answers are for its questions.
func (h *hardware) run(answers string, args ...string) (table string, code int) {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "out.tar.gz")
	table, code = h.script(answers, append([]string{"--file", file}, args...)...)
	names := filesOf(h.t, file)
	if !slices.Contains(names, "./node.tgz") || !slices.Contains(names, "./results.txt") {
		h.t.Errorf("the archive has %v; output:\n%s", names, table)
	}
	return table, code
}

// script returns the output and the exit code. Programs of the test find its process in the file "pid" beside them.
func (h *hardware) script(answers string, args ...string) (out string, code int) {
	h.t.Helper()
	const shell = `echo $$ >"$0"; exec /bin/sh ../../scripts/prove-on-hardware.sh "$@"`
	// A shell can't trap a signal that it ignores from its start on, as below nohup.
	cmd := exec.CommandContext(h.t.Context(), "/usr/bin/env", append([]string{"--default-signal=HUP", "/bin/sh", "-c", shell, filepath.Join(h.bin, "pid")}, args...)...)
	cmd.Env = []string{"PATH=" + h.bin + ":/usr/bin:/bin", "KATA_VFIO_ROOT=" + h.root}
	cmd.Stdin = strings.NewReader(answers)
	text, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		h.t.Fatal(err)
	}
	return string(text), code
}

func filesOf(t *testing.T, file string) (names []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		entry, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, entry.Name)
	}
}

func (h *hardware) wantLines(table string, want ...string) {
	h.t.Helper()
	spaces := regexp.MustCompile(` +`)
	table = spaces.ReplaceAllString(table, " ")
	for _, line := range want {
		if !strings.Contains(table, line) {
			h.t.Errorf("no line %q in:\n%s", line, table)
		}
	}
}

func (h *hardware) read(name string) string {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(h.root, name))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(text)
}

const vgpuDir = "sys/bus/pci/devices/0000:3b:00.4/"

func (h *hardware) vgpu() {
	h.function("0000:3b:00.4", "nvidia", map[string]string{
		"nvidia/current_vgpu_type": "0", "nvidia/creatable_vgpu_types": "ID : vGPU Name\n1428 : NVIDIA H200X-35C\n", "vfio-dev/vfio0/dev": "511:0\n", "reset": "",
	})
}

// TestHardwareWithoutAsking changes nothing, whatever the node has.
func TestHardwareWithoutAsking(t *testing.T) {
	h := newHardware(t)
	h.vgpu()
	h.xe()
	table, code := h.run("")
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	h.wantLines(table, "H1 as expected", "V1 as expected driver of the VF 0000:3b:00.4: nvidia", "V2 as expected", "V3 not asked", "X1 as expected", "X2 not asked", "X4 as expected", "X13 not asked", "A1 no hardware", "R1 no hardware")
	if got := h.read(vgpuDir + "nvidia/current_vgpu_type"); got != "0" {
		t.Errorf("the type is %q without a question", got)
	}
}

// TestHardwareThatIsAsExpected is asked, and is as before afterwards.
func TestHardwareThatIsAsExpected(t *testing.T) {
	h := newHardware(t)
	h.vgpu()
	h.xe()
	table, code := h.run("yes\nyes\n", "--ask")
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	h.wantLines(table, "V3 as expected type after it was written: 1428", "V4 as expected", "V5 as expected", "V6 as expected", "V7 as expected", "V8 as expected", "V9 as expected", "V10 as expected", "X2 as expected", "X3 as expected exec_quantum_ms of VF 1 of 0000:c8:00.0 as found: 7", "X5 declined")
	if got := h.read(xeProfile + "exec_quantum_ms"); got != "7" {
		t.Errorf("exec_quantum_ms is %q, want 7 as found", got)
	}
}

// TestHardwareOfAMD reads how gim has divided a GPU.
func TestHardwareOfAMD(t *testing.T) {
	for memory, line := range map[string]string{
		"memory_partition_mode: NPS4\nnuma_count: 1\n": "A2 as expected 0000:c1:00.0 is divided as CPX/NPS4",
		"failed to get current mp mode\n":              "A2 differs partition of 0000:c1:00.0: expected such as CPX/NPS4, saw CPX/",
	} {
		h := newHardware(t)
		h.put("sys/module/gim/parameters/vf_num", "8\n")
		h.function("0000:c1:00.0", "gim", map[string]string{
			"sriov_numvfs": "8\n", "spatial_partition_mode": "CPX\n", "memory_partition_mode": memory,
		})
		table, _ := h.run("")
		h.wantLines(table, "A1 as expected number of VFs of 0000:c1:00.0: 8", line)
	}
}

// TestHardwareThatDiffers is said, with code 3; a declined experiment changes nothing.
func TestHardwareThatDiffers(t *testing.T) {
	h := newHardware(t)
	h.function("0000:3b:00.4", "vfio-pci", map[string]string{"nvidia/current_vgpu_type": "0", "nvidia/creatable_vgpu_types": "1428 : NVIDIA H200X-35C\n"})
	table, code := h.run("no\n", "--ask")
	if code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	h.wantLines(table, "V1 differs driver of the VF 0000:3b:00.4: expected nvidia, saw vfio-pci", "V2 differs", "V3 declined")
}

// board adds the programs of an HGX board: a Fabric Manager with two partitions, of which 1 is active.
func (h *hardware) board(fmpm string) {
	state := filepath.Join(h.bin, "active-0")
	h.program("kata-vfio-fabric", `#!/bin/sh
case $(cat) in
*activate*'"id": 0'*) touch `+state+` ;;
esac
`+strings.ReplaceAll(`request=; [ -e STATE ] && request=true
printf '{"code":0,"partitions":[{"id":0,"active":%s,"gpus":[{"module":1}]},{"id":1,"active":true,"gpus":[{"module":2}]}]}\n' "${request:-false}"
`, "STATE", state))
	h.program("kata-vfio-bootstrap", "#!/bin/sh\necho MODULE ADDRESS\necho 1 0000:1b:00.0\n")
	h.program("systemctl", "#!/bin/sh\necho \"$@\" >>"+filepath.Join(h.bin, "restarted")+"\n")
	h.program("nvidia-smi", "#!/bin/sh\necho GPU\n")
	h.program("fmpm", "#!/bin/sh\necho '"+fmpm+"'\n")
}

// TestHardwareOfABoard lists partitions by the plugin's program, compares them with those of fmpm, and activates no active one.
func TestHardwareOfABoard(t *testing.T) {
	h := newHardware(t)
	h.board(`{"partitionInfo": [{"partitionId": 0}, {"partitionId": 1}]}`)
	h.put("proc/driver/nvidia/gpus/0000:1b:00.0/information", "Model: \t\t NVIDIA H200\nDevice Minor: \t 0\n")
	table, code := h.run("yes\n", "--ask", "--partition", "1")
	if code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	h.wantLines(table, "F1 as expected", "F4 as expected", "F5 as expected partitions of fmpm -l: 0 1", "F9 as expected /proc/driver/nvidia/gpus has a Module ID: no", "F2 not asked partition 1 is not listed as inactive")
	// This Fabric Manager never deactivates.
	h.board(`{"partitionInfo": [{"partitionId": 0}]}`)
	table, code = h.run("yes\n", "--ask", "--partition", "0")
	if code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
	h.wantLines(table, "F6 as expected activation of partition 0 took", "F7 not asked", "F8 declined")
	h.wantLines(table, "F5 differs partitions of fmpm -l: expected 0 1 , saw 0", "F2 as expected partition 0 is active", "F3 differs partition 0 is active after kata-vfio-fabric deactivated it: expected no, saw yes")
}

// TestHardwareOfABoardThatRestarts: a GPU of the active partition is reset, and Fabric Manager is started again, each after a question.
func TestHardwareOfABoardThatRestarts(t *testing.T) {
	h := newHardware(t)
	h.function("0000:1b:00.0", "vfio-pci", map[string]string{"reset": "", "reset_method": "bus\n", "class": "0x028000\n"})
	h.board(`{"partitionInfo": [{"partitionId": 0}, {"partitionId": 1}]}`)
	table, _ := h.run("yes\nyes\nyes\n", "--ask", "--partition", "0")
	h.wantLines(table, "F2 as expected", "F7 as expected partition 0 is active after a reset of 0000:1b:00.0: yes", "F8 as expected active partitions after a restart of Fabric Manager: 0 1")
	if got := h.read("sys/bus/pci/devices/0000:1b:00.0/reset"); got != "1" {
		t.Errorf("reset has %q, want 1", got)
	}
	table, _ = h.run("", "--partition", "0") // asks nothing
	h.wantLines(table, "F2 not asked", "F8 not asked")
	restarted, err := os.ReadFile(filepath.Join(h.bin, "restarted"))
	if err != nil || string(restarted) != "restart nvidia-fabricmanager\n" {
		t.Errorf("systemctl got %q, %v", restarted, err)
	}
}

// TestChecklistHasEachLine of the script.
func TestChecklistHasEachLine(t *testing.T) {
	script, err := os.ReadFile("../../scripts/prove-on-hardware.sh")
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("../../deploy/hardware-checklist.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile(`(?:result|compare|offered|near|changed) ([A-Z][0-9]+)(?: ([A-Z][0-9]+))?`).FindAllStringSubmatch(string(script), -1)
	for _, m := range lines {
		for _, line := range m[1:] {
			if line != "" && !regexp.MustCompile(`(?m)^\| (?:[A-Z0-9, ]+, )?`+line+`(?:, [A-Z0-9]+)* \|`).Match(list) {
				t.Errorf("deploy/hardware-checklist.md has no line %s", line)
			}
		}
	}
}
