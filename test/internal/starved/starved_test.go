package starved

import (
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	for text, want := range map[string]string{
		"some avg10=92.90 avg60=91.06 avg300=78.56 total=7270749398\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n": "79 % of the last five minutes",
		"some avg10=99.00 avg60=80.00 avg300=40.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=99.00 total=0\n":         "",
		"":                        "",
		"Operation not supported": "",
	} {
		if got := judge(text); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("judge(%q) = %q; want %q", text, got, want)
		}
	}
}
