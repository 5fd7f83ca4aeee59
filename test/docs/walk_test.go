package docs

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStepsOfBlocks(t *testing.T) {
	const text = "Do:\n\n```sh\nfirst\nsecond\n```\n\nExpect:\n\n```text\nfine\n```\n\n```yaml\na: b\n```\n\n```text\nno output\n```\n\n" +
		"1. In a list:\n\n   ```console\n   $ one \\\n       --flag\n   shown\n     indented\n   # two\n   ```\n"
	want := []Step{
		{Command: "first\nsecond\n", Output: "fine\n"},
		{Command: "one \\\n    --flag\n", Output: "shown\n  indented\n"},
		{Command: "two\n"},
	}
	if diff := cmp.Diff(want, stepsOf(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStepsOfSections(t *testing.T) {
	install := Steps(t, "README.md", "Install it")
	if len(install) != 1 || !strings.Contains(install[0].Command, "helm install") || strings.Contains(install[0].Command, "make demo") {
		t.Errorf("README.md installs with %+v", install)
	}
	if first := Steps(t, "cmd/kata-vfio-audit/README.md", ""); !strings.Contains(first[0].Command, "kata-vfio-audit node") {
		t.Errorf("the audit's README begins with %+v", first)
	}
}

func TestMatch(t *testing.T) {
	for name, c := range map[string]struct{ shown, got, want string }{
		"the same":             {"a b\nc\n", "a   b\n\nc\n", ""},
		"any text":             {"node ... is ready in ...s\n", "node worker-1 is ready in 3s\n", ""},
		"any lines":            {"a\n...\nz\n", "a\nb\nc\nz\n", ""},
		"any lines at the end": {"a\n...\n", "a\nb\n", ""},
		"another line":         {"a\nb\n", "a\nc\n", `shows "b" where the output has "c"`},
		"a line less":          {"a\nb\n", "a\n", `shows "b", which the output lacks`},
		"a line more":          {"a\n", "a\nb\n", `does not show "b"`},
		"never found":          {"...\nz\n", "a\nb\n", `shows "z", which the output lacks`},
		"signs":                {"a.c (1)\n", "abc (1)\n", `shows "a.c (1)"`},
	} {
		err := Match(c.shown, c.got)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
