package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
)

// TestOutputAsInKubectl: names, fields and columns, without titles, sorted and selected as kubectl does it.
func TestOutputAsInKubectl(t *testing.T) {
	for line, want := range map[string][]string{
		"claims -o name":                                   {"resourceclaim.resource.k8s.io/lab", "resourceclaim.resource.k8s.io/train-gpu", "resourceclaim.resource.k8s.io/train-net"},
		"claims -l app=train -o name":                      {"resourceclaim.resource.k8s.io/train-net"},
		"claims -l app=none -o name":                       nil,
		"claims -o jsonpath={.claims[*].name}":             {"lab train-gpu train-net"},
		"claims -o custom-columns=NAME:.name,IS:.standing": {"NAME        IS", "lab         weakened", "train-gpu   ready", "train-net   ready"},
		"claims --no-headers --sort-by .name -o custom-columns=NAME:.name,NO:{.nothing}": {"lab         <none>", "train-gpu   <none>", "train-net   <none>"},
		"devices --node worker-1 -o jsonpath={.devices[?(@.kind==\"vf\")].address}":      {"0000:5e:00.2 0000:5e:00.3 0000:5e:00.4"},
		"topology worker-1 -o name": {"node/worker-1"},
		"audit worker-1 -o name":    {"node/worker-1"},
	} {
		objects := sampleObjects(t)
		for _, o := range objects {
			if c, ok := o.(*resourceapi.ResourceClaim); ok && c.Name == "train-net" {
				c.Labels = map[string]string{"app": "train"}
			}
		}
		stdout, stderr, code := ask(t, client(objects), strings.Fields(line)...)
		var got []string
		if stdout != "" {
			got = strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
		}
		if diff := cmp.Diff(want, got); diff != "" || code != 0 {
			t.Errorf("%s: exit code %d: %s (-want +got):\n%s", line, code, stderr, diff)
		}
	}
}

// TestNamesAreArguments of explain.
func TestNamesAreArguments(t *testing.T) {
	for _, line := range []string{"claims -o name", "devices --node worker-1 -o name"} {
		names, _, _ := ask(t, sample(t), strings.Fields(line)...)
		for name := range strings.FieldsSeq(names) {
			if _, stderr, code := ask(t, sample(t), "explain", name); code != 0 {
				t.Errorf("explain %s: exit code %d: %s", name, code, stderr)
			}
		}
	}
}

// TestSortByNumbers, which are not sorted as text.
func TestSortByNumbers(t *testing.T) {
	rows := []row{{key: "b", value: map[string]int{"n": 10}}, {key: "c", value: map[string]int{}}, {key: "a", value: map[string]int{"n": 9}}}
	by, err := newQuery("n", true)
	if err != nil {
		t.Fatal(err)
	}
	if err := sortRows(rows, by); err != nil || rows[0].key+rows[1].key+rows[2].key != "cab" {
		t.Errorf("%v, %v", rows, err)
	}
}

// TestFieldsDoNothingInATerminal: text of nodes is written out.
func TestFieldsDoNothingInATerminal(t *testing.T) {
	q, err := newQuery(`{.a[*].b}{"\n"}`, false)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := q.print(&out, map[string]any{"a": []any{map[string]string{"b": "\x1b[2J"}, map[string]int64{"b": 1 << 40}}}); err != nil || out.String() != "\\x1b[2J 1099511627776\n" {
		t.Errorf("%q, %v", &out, err)
	}
}

// TestWrongQueries are errors of the command line.
func TestWrongQueries(t *testing.T) {
	for _, line := range []string{
		"devices -o jsonpath={.a", "devices -o custom-columns=", "devices -o custom-columns=A", "devices -o jsonpath", "devices -o table=x", "devices --sort-by {",
		"devices -o json --sort-by .name", "devices --watch -o name", "claims -l ===", "topology --no-headers",
	} {
		if stdout, stderr, code := ask(t, sample(t), strings.Fields(line)...); code != command.Usage || stdout != "" {
			t.Errorf("%s: exit code %d, %q, %s", line, code, stdout, stderr)
		}
	}
}
