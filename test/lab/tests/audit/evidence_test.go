//go:build lab

// Package audit_test holds the audit against a real kernel: what it says was read against plain reads, lspci's setpci and ip,
// and faults of a running machine against what it finds.
package audit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/rule"
	kernel "github.com/kata-vfio/kata-vfio/test/lab/tests/node"
	"github.com/kata-vfio/kata-vfio/test/lab/tests/stage"
	"github.com/kata-vfio/kata-vfio/test/lab/topology"
)

// TestEvidenceIsWhatTheMachineSays reads everything again that any check gives as evidence, while two tenants have functions.
func TestEvidenceIsWhatTheMachineSays(t *testing.T) {
	kernel.VFs(t, topology.PF0, "2")
	n := stage.Open(t, stage.Config())
	give(t, n, "tenant-a", topology.GPU0)
	give(t, n, "tenant-b", topology.VF(topology.PF0, 0))
	compared := map[string]int{}
	for _, f := range stage.Audit(t).Findings {
		for _, e := range f.Evidence {
			says, known := machineSays(t, &e)
			if !known {
				continue
			}
			compared[e.How]++
			if !says {
				t.Errorf("%s has %s as %q by %s, which it does not say", f.ID, e.Path, e.Value, e.How)
			}
		}
	}
	t.Logf("compared: %v", compared)
	for _, how := range []string{"read", "list", "config"} {
		if compared[how] == 0 {
			t.Errorf("nothing is evidence by %s", how)
		}
	}
}

// machineSays reports whether the machine says what the evidence does, as far as a plain look can tell.
func machineSays(t *testing.T, e *rule.Evidence) (says, known bool) {
	t.Helper()
	if e.Error != "" || !filepath.IsAbs(e.Path) {
		return false, false
	}
	value := strings.TrimSuffix(e.Value, "…")
	switch e.How {
	case "read":
		return fileSays(e.Path, value), true
	case "list":
		return contains(strings.Join(stage.Files(t, e.Path), "\n"), value), true
	case "link":
		target, err := os.Readlink(e.Path)
		return err == nil && filepath.Base(target) == value, true
	case "config":
		return configSays(t, filepath.Base(filepath.Dir(e.Path)), value)
	}
	return false, false
}

// fileSays reads the files that a path, with stars for any name, leads to.
func fileSays(pattern, value string) bool {
	paths, err := filepath.Glob(pattern)
	var all strings.Builder
	for _, path := range paths {
		text, readErr := os.ReadFile(path)
		err = errors.Join(err, readErr)
		all.Write(text)
	}
	text := all.String()
	switch {
	case err != nil:
		return false
	case pattern == "/sys/firmware/acpi/tables/DMAR": // the flags are a byte of the table (Intel VT-d specification 8.1)
		return value == fmt.Sprintf("flags 0x%02x", text[37])
	case pattern == "/proc/cpuinfo":
		return contains(text, strings.Replace(value, " ", " : ", 1))
	case filepath.Base(pattern) == "resource":
		return barsSay(text, value)
	case len(paths) > 1: // words that some of them have, or begin with: chips of MSI have a function's address behind
		return !slices.ContainsFunc(strings.Fields(value), func(w string) bool { return !strings.Contains("\n"+text, "\n"+w) })
	}
	return contains(text, value)
}

// barsSay compares sizes, "BAR 0 16 MiB, BAR 2 4 KiB", with the lines of a resource file: "0xstart 0xend 0xflags".
func barsSay(text, value string) bool {
	lines := strings.Split(text, "\n")
	for bar := range strings.SplitSeq(value, ", ") {
		var index, size int
		var unit string
		if _, err := fmt.Sscanf(bar, "BAR %d %d %s", &index, &size, &unit); err != nil || index >= len(lines) {
			return false
		}
		var start, end, flags uint64
		if _, err := fmt.Sscanf(lines[index], "0x%x 0x%x 0x%x", &start, &end, &flags); err != nil {
			return false
		}
		shift, known := map[string]int{"KiB": 10, "MiB": 20, "GiB": 30}[unit]
		if !known || end-start+1 != uint64(size)<<shift {
			return false
		}
	}
	return true
}

// contains compares without regard to white space, which evidence has on one line.
func contains(text, part string) bool {
	return strings.Contains(strings.Join(strings.Fields(text), " "), strings.Join(strings.Fields(part), " "))
}

var (
	acsEvidence     = regexp.MustCompile(`^ACS capability 0x([0-9a-f]{4}), control 0x([0-9a-f]{4})`)
	commandEvidence = regexp.MustCompile(`^command 0x([0-9a-f]{4})$`)
)

// configSays has setpci read the register.
func configSays(t *testing.T, address, value string) (says, known bool) {
	t.Helper()
	if value == "no ACS capability" {
		return setpci(t, "-s", address, "ECAP_ACS+4.w") == "", true
	}
	if m := acsEvidence.FindStringSubmatch(value); m != nil {
		return setpci(t, "-s", address, "ECAP_ACS+4.w", "ECAP_ACS+6.w") == m[1]+" "+m[2], true
	}
	if m := commandEvidence.FindStringSubmatch(value); m != nil {
		return setpci(t, "-s", address, "COMMAND") == m[1], true
	}
	return false, false
}

// setpci is what setpci prints, empty for a capability that is not there.
func setpci(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "setpci", args...).CombinedOutput()
	switch {
	case err == nil:
		return strings.Join(strings.Fields(string(out)), " ")
	case strings.Contains(string(out), "not found"):
		return ""
	}
	t.Fatalf("setpci %s: %v: %s", strings.Join(args, " "), err, out)
	return ""
}

// TestRegistersAreWhatSetpciReads compares what the checks judge by: the ACS words and the command register of every function.
func TestRegistersAreWhatSetpciReads(t *testing.T) {
	kernel.VFs(t, topology.PF0, "2")
	n := stage.Facts(t)
	var all, withACS []string
	commands, words := "", ""
	for i := range n.Snapshot.Functions {
		f := &n.Snapshot.Functions[i]
		command, seen := n.Command(f)
		if !seen.OK() {
			t.Errorf("the command register of %s: %s", f.Address, seen.Err)
		}
		all, commands = append(all, "-s", f.Address.String(), "COMMAND"), commands+fmt.Sprintf("%04x ", command)
		switch acs := f.Capabilities.ACS; {
		case acs != nil:
			withACS, words = append(withACS, "-s", f.Address.String(), "ECAP_ACS+4.w", "ECAP_ACS+6.w"), words+fmt.Sprintf("%04x %04x ", acs.Capability, acs.Control)
		case setpci(t, "-s", f.Address.String(), "ECAP_ACS+4.w") != "":
			t.Errorf("setpci reads ACS of %s, which the audit does not know", f.Address)
		}
	}
	if diff := cmp.Diff(setpci(t, all...), strings.TrimSpace(commands)); diff != "" {
		t.Errorf("command registers (-setpci +audit):\n%s", diff)
	}
	if diff := cmp.Diff(setpci(t, withACS...), strings.TrimSpace(words)); diff != "" || words == "" {
		t.Errorf("ACS of %v (-setpci +audit):\n%s", withACS, diff)
	}
	t.Logf("%d functions compared, with ACS: %s", len(n.Snapshot.Functions), words)
}
