package main

import (
	"strings"
	"testing"
)

// TestMistakesAreExplained: what is wrong, and what to do about it.
func TestMistakesAreExplained(t *testing.T) {
	for about, c := range map[string]struct {
		args []string
		code int
		text string
	}{
		"a code with a typo":        {[]string{"explain", "GroupNotVible"}, 2, `there is no code "GroupNotVible" (did you mean GroupNotViable?)`},
		"an API server that is off": {[]string{"devices", "--kubeconfig", "/dev/null", "--server", "http://127.0.0.1:1"}, 1, "the API server did not answer: `kubectl version` shows"},
		"a context that is not":     {[]string{"devices", "--kubeconfig", "/dev/null", "--context", "nope"}, 2, "`kubectl config get-contexts` lists its contexts"},
	} {
		t.Run(about, func(t *testing.T) {
			var out strings.Builder
			err := run(t.Context(), c.args, &out, &out)
			if err == nil || exitCode(err) != c.code || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want exit code %d and %q", err, c.code, c.text)
			}
		})
	}
}
