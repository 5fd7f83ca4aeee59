package audit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/device"
	"github.com/kata-vfio/kata-vfio/test/golden"
)

// text runs a printer.
func text(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func table(t *testing.T, inv *audit.Inventory, style audit.Style) string {
	t.Helper()
	return text(t, func(w io.Writer) error { return inv.WriteTable(w, style) })
}

func wide(t *testing.T, inv *audit.Inventory, style audit.Style) string {
	t.Helper()
	return text(t, func(w io.Writer) error { return inv.WriteWide(w, style) })
}

func TestPrintGolden(t *testing.T) {
	inv := sample()
	golden.Compare(t, "table.txt", table(t, inv, audit.Style{}))
	golden.Compare(t, "table-all.txt", table(t, inv, audit.Style{Bridges: true}))
	golden.Compare(t, "wide.txt", wide(t, inv, audit.Style{}))
	golden.Compare(t, "devices.json", text(t, inv.WriteJSON))
	golden.Compare(t, "devices.yaml", text(t, inv.WriteYAML))
	golden.Compare(t, "empty.txt", table(t, assess(&device.Snapshot{}), audit.Style{}))
}

func TestTableKeepsToThePage(t *testing.T) {
	for line := range strings.Lines(table(t, sample(), audit.Style{Bridges: true})) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
		if strings.TrimRight(line, " \n") != strings.TrimRight(line, "\n") {
			t.Errorf("trailing space: %q", line)
		}
	}
}

func TestColorAddsNothingButColor(t *testing.T) {
	escape := regexp.MustCompile("\x1b\\[[0-9]+m")
	for _, bridges := range []bool{false, true} {
		colored := table(t, sample(), audit.Style{Color: true, Bridges: bridges})
		if !escape.MatchString(colored) {
			t.Error("no color at all")
		}
		plain := escape.ReplaceAllString(colored, "")
		trim := regexp.MustCompile(` +\n`) // padding of a painted cell
		if diff := cmp.Diff(table(t, sample(), audit.Style{Bridges: bridges}), trim.ReplaceAllString(plain, "\n")); diff != "" {
			t.Errorf("texts differ (-plain +colored):\n%s", diff)
		}
	}
}

// The worst is last, next to the prompt.
func TestHintsAreWorstLast(t *testing.T) {
	inv := sample()
	var order []string
	for line := range strings.Lines(table(t, inv, audit.Style{})) {
		if word, _, ok := strings.Cut(line, " "); ok && regexp.MustCompile("^(critical|high|medium|low)$").MatchString(word) {
			order = append(order, word)
		}
	}
	if len(order) < 2 {
		t.Fatalf("hints: %v", order)
	}
	rank := map[string]int{"low": 0, "medium": 1, "high": 2, "critical": 3}
	for i := range order[1:] {
		if rank[order[i]] > rank[order[i+1]] {
			t.Errorf("hints in order %v", order)
		}
	}
}

func TestManyWithTheSameTroubleAreOneHint(t *testing.T) {
	s := node()
	s.Host.IRQChips = []string{"PCI-MSI"}
	out := table(t, assess(s), audit.Style{})
	if n := strings.Count(out, "interrupts are not remapped"); n != 1 {
		t.Errorf("%d hints, want 1:\n%s", n, out)
	}
	if want := "so with 0000:21:10.0, 0000:22:00.0, 0000:24:01.0 and 1 more"; !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
		t.Errorf("output lacks %q:\n%s", want, out)
	}
}

// TestJSONContract pins the names that other programs read.
func TestJSONContract(t *testing.T) {
	var doc struct {
		Devices []map[string]any `json:"devices"`
	}
	if err := json.Unmarshal([]byte(text(t, sample().WriteJSON)), &doc); err != nil {
		t.Fatal(err)
	}
	byAddress := map[string]map[string]any{}
	for _, d := range doc.Devices {
		byAddress[d["address"].(string)] = d
		for _, key := range []string{"address", "type", "vendor", "device", "class", "driver", "groupMembers", "isolated", "reasons", "notes"} {
			if d[key] == nil {
				t.Errorf("%s lacks %s", d["address"], key)
			}
		}
	}
	want := map[string]any{
		"type": "vf", "vendor": "8086", "device": "10c9", "class": "020000", "driver": "igbvf", "numaNode": 0.0,
		"pcieRoot": "pci0000:20", "iommuGroup": 3.0, "groupMembers": []any{"0000:21:10.0"},
		"pf": "0000:21:00.0", "vfIndex": 0.0, "isolated": true, "reasons": []any{},
	}
	for key, value := range want {
		if diff := cmp.Diff(value, byAddress["0000:21:10.0"][key]); diff != "" {
			t.Errorf("%s of the VF (-want +got):\n%s", key, diff)
		}
	}
	for _, absent := range []string{"numaNode", "pf", "vfIndex", "pcieSwitch"} {
		if v, ok := byAddress["0000:24:01.0"][absent]; ok {
			t.Errorf("%s = %v, want it absent", absent, v)
		}
	}
	reason := byAddress["0000:24:01.0"]["reasons"].([]any)[0].(map[string]any)
	if reason["code"] != "GroupNotViable" || reason["culprit"] != "0000:23:00.0" || reason["severity"] != "high" {
		t.Errorf("reason = %v", reason)
	}
}

func TestYAMLSaysWhatJSONSays(t *testing.T) {
	inv := sample()
	fromYAML, err := yaml.YAMLToJSON([]byte(text(t, inv.WriteYAML)))
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	if err := errors.Join(json.Unmarshal(fromYAML, &a), json.Unmarshal([]byte(text(t, inv.WriteJSON)), &b)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, a); diff != "" {
		t.Errorf("(-json +yaml):\n%s", diff)
	}
}

// brokenPipe fails as a closed pipe does.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestPrintersReportAFailedWrite(t *testing.T) {
	inv := sample()
	for name, write := range map[string]func(io.Writer) error{
		"table": func(w io.Writer) error { return inv.WriteTable(w, audit.Style{}) },
		"wide":  func(w io.Writer) error { return inv.WriteWide(w, audit.Style{}) },
		"json":  inv.WriteJSON, "yaml": inv.WriteYAML,
	} {
		if err := write(brokenPipe{}); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: err = %v, want %v", name, err, io.ErrClosedPipe)
		}
	}
}

// TestDevicesFitTheTerminal: no line of the tables is longer than the terminal, and each function keeps its address and verdict. In
// a pipe all columns are there.
func TestDevicesFitTheTerminal(t *testing.T) {
	inv := sample()
	for name, print := range map[string]func(*testing.T, *audit.Inventory, audit.Style) string{"table": table, "wide": wide} {
		for _, width := range []int{60, 80, 100, 120, 160, 300} {
			text, _, _ := strings.Cut(print(t, inv, audit.Style{Width: width, Terminal: width, Bridges: true}), "\nnot isolated:")
			for line := range strings.Lines(text) {
				if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > width {
					t.Errorf("%s at %d columns: a line has %d:\n%s", name, width, n, line)
				}
			}
			for i := range inv.Devices {
				if a := inv.Devices[i].Address.String(); !strings.Contains(text, "  "+a) {
					t.Errorf("%s at %d columns: no row of %s:\n%s", name, width, a, text)
				}
			}
			if !strings.Contains(text, "isolated, WeakReset") {
				t.Errorf("%s at %d columns lacks a verdict:\n%s", name, width, text)
			}
			if left := strings.Contains(text, "left out, as the terminal is too narrow: "); left != (name == "wide" && width < 300 || width <= 80) {
				t.Errorf("%s at %d columns: says that columns are left out: %t\n%s", name, width, left, text)
			}
		}
	}
	if text := wide(t, inv, audit.Style{}); strings.Contains(text, "left out") {
		t.Errorf("columns are left out in a pipe:\n%s", text)
	}
}
