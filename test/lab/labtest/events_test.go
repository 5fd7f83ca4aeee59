package labtest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCollect(t *testing.T) {
	const in = `{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"run","Test":"TestA/one"}
{"Action":"output","Test":"TestA/one","Output":"    a_test.go:1: seen\n"}
{"Action":"output","Test":"TestA/one","Output":"    --- FAIL: TestA/one (0.10s)\n"}
{"Action":"fail","Test":"TestA/one","Elapsed":0.1}
{"Action":"fail","Test":"TestA","Elapsed":0.2}
{"Action":"run","Test":"TestB"}
{"Action":"output","Output":"panic: lost\n"}
`
	var finished []string
	root, err := collect(strings.NewReader(in), func(r *result) { finished = append(finished, r.name) })
	if err != nil {
		t.Fatal(err)
	}
	got := flatten(root, "")
	want := []string{` "" "panic: lost\n"`, `/TestA "fail" ""`, `/TestA/one "fail" "    a_test.go:1: seen\n"`, `/TestB "" ""`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"TestA"}, finished); diff != "" {
		t.Errorf("finished (-want +got):\n%s", diff)
	}
}

// A second run leaves out what has passed, and no test whose name only begins like it.
func TestEventsSkipPassedTests(t *testing.T) {
	first := &result{children: []*result{{name: "TestA", outcome: "pass"}, {name: "TestB", outcome: "fail"}, {name: "TestC"}}}
	passed := first.passed()
	flag := strings.Join(skip(passed), " ")
	if want := "-test.skip=^(TestA)$"; flag != want {
		t.Errorf("the flag is %q, want %q", flag, want)
	}
	if got := skip(nil); got != nil {
		t.Errorf("the flags without passed tests are %q", got)
	}
	second := &result{children: []*result{{name: "TestB", outcome: "pass"}, {name: "TestC", outcome: "fail"}}}
	want := []string{` "" ""`, `/TestA "pass" ""`, `/TestB "pass" ""`, `/TestC "fail" ""`}
	if diff := cmp.Diff(want, flatten(second.after(passed), "")); diff != "" {
		t.Errorf("both runs' results (-want +got):\n%s", diff)
	}
	var none *result
	if none.passed() != nil || none.after(passed) != nil {
		t.Error("a run without results has some")
	}
}

func TestCollectDamaged(t *testing.T) {
	if _, err := collect(strings.NewReader(`{"Action":`), func(*result) {}); err == nil {
		t.Error("no error for events that end in the middle")
	}
}

func flatten(r *result, path string) []string {
	lines := []string{fmt.Sprintf("%s %q %q", path, r.outcome, r.output.String())}
	for _, c := range r.children {
		lines = append(lines, flatten(c, path+"/"+c.name)...)
	}
	return lines
}

func TestTestTimeout(t *testing.T) {
	for _, tt := range []struct {
		flags []string
		want  time.Duration
		bad   bool
	}{
		{[]string{"-test.v=test2json", "-test.timeout=10m0s"}, 10 * time.Minute, false},
		{[]string{"-test.timeout=10m", "-test.run=X", "-test.timeout=25m"}, 25 * time.Minute, false},
		{[]string{"-test.timeout=soon"}, 0, true},
	} {
		if got, err := testTimeout(tt.flags); got != tt.want || (err != nil) != tt.bad {
			t.Errorf("testTimeout(%q) = %s, %v; want %s", tt.flags, got, err, tt.want)
		}
	}
}
