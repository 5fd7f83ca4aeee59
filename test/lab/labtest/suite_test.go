package labtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/test/lab/remote"
)

func TestSummaryHasTheInnermostFailures(t *testing.T) {
	one := &result{name: "one", outcome: "fail"}
	one.output.WriteString("seen\n")
	root := &result{children: []*result{
		{name: "TestA", outcome: "fail", children: []*result{one, {name: "two", outcome: "pass"}}},
		{name: "TestB", outcome: "pass"},
		{name: "TestC"},
		{name: "TestD", outcome: "skip"},
	}}
	root.output.WriteString("panic: lost\n")
	tests := []failure{{"pkg/TestA/one", "seen\n"}, {"pkg/TestC", ""}, {"pkg/TestD", ""}}
	whole := failure{"pkg", "panic: lost\nbroken"}
	for name, tt := range map[string]struct {
		root *result
		err  error
		want []failure
	}{
		"a failed test":           {root, &remote.ExitError{Exit: remote.Exit{Code: 1}}, tests},
		"a machine that was lost": {root, errors.New("broken"), append(tests[:3:3], whole)},
		"a run without results":   {nil, errors.New("broken"), []failure{{"pkg", "broken"}}},
		"no failure":              {&result{children: []*result{{name: "TestB", outcome: "pass"}}}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, failuresOf("pkg", tt.root, tt.err), cmp.AllowUnexported(failure{})); diff != "" {
				t.Errorf("failures (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSummaryIsShort(t *testing.T) {
	long := ""
	for i := range 40 {
		long += fmt.Sprintf("line %d\n", i)
	}
	for _, tt := range []struct{ failed, lines, ofOne int }{{0, 0, 0}, {1, 12, 12}, {2, 24, 12}, {3, 24, 8}, {24, 24, 1}, {60, 25, 1}} {
		var out strings.Builder
		summarize(&out, repeated(failure{"pkg/TestA", long}, tt.failed))
		got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if tt.failed == 0 {
			if out.Len() > 0 {
				t.Errorf("without failures: %q", out.String())
			}
			continue
		}
		if len(got) != tt.lines || got[0] != "FAILED in the machine: pkg/TestA" {
			t.Errorf("%d failures: %d lines, want %d:\n%s", tt.failed, len(got), tt.lines, out.String())
		}
		if tt.ofOne > 1 && got[tt.ofOne-1] != "  line 39" {
			t.Errorf("%d failures: the first one's last line is %q", tt.failed, got[tt.ofOne-1])
		}
		if more := "and 36 more guest tests failed"; tt.failed == 60 && got[24] != more {
			t.Errorf("the last line is %q, want %q", got[24], more)
		}
	}
}

func repeated(f failure, n int) []failure {
	all := make([]failure, n)
	for i := range all {
		all[i] = f
	}
	return all
}
