package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
)

func TestCandidateCommandLine(t *testing.T) {
	root := server(t).Root()
	archived := t.TempDir() + "/node.tgz"
	if _, stderr, err := execute(t, "--root", root, "collect", "--file", archived); err != nil {
		t.Fatal(err, stderr)
	}
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"--candidate":                     {exitFindings, "Solve first"},
		"--candidate --severity critical": {exitFindings, "By hand"},
		"--candidate -o sarif":            {exitUsage, "one of table, json, yaml"},
		"--candidate --every 1h":          {exitUsage, "remove --every"},
		"-f x.yaml":                       {exitUsage, "--blueprint needs --candidate"},
		"--candidate -f /nonexistent":     {exitUsage, "/nonexistent"},
		"--candidate --profile nonsense":  {exitUsage, "no such profile"},
		"--candidate --root " + archived:  {exitUsage, "is an archive"},
		"--candidate -f " + put(t, "{]"):  {exitUsage, "waivers.yaml"},
		"--candidate --file /dev/null/x":  {exitFailed, "/dev/null/x"},
	} {
		stdout, _, err := execute(t, append([]string{"--root", root, "node"}, strings.Fields(args)...)...)
		text := stdout
		if err != nil {
			text += err.Error()
		}
		if got := exitCodeOf(err); got != want.code || !strings.Contains(text, want.says) {
			t.Errorf("%s: code %d, want %d, and %q\n%s", args, got, want.code, want.says, text)
		}
	}
}

// TestCandidateTakesTheBlueprint: by the flag, or the node's own.
func TestCandidateTakesTheBlueprint(t *testing.T) {
	tree := server(t)
	const text = "apiVersion: bootstrap.kata-vfio.dev/v1alpha1\nkind: NodeBlueprint\ncontainers: {runtime: None}\n"
	named := put(t, text)
	for _, c := range []struct {
		source string
		args   []string
	}{{named, []string{"-f", named}}, {"/etc/kata-vfio/blueprint.yaml", nil}} {
		stdout, _, err := execute(t, append([]string{"--root", tree.Root(), "node", "--candidate", "-o", "json", "--node-name", "gpu-1", "--profile", "single-tenant"}, c.args...)...)
		var got audit.Candidate
		if json.Unmarshal([]byte(stdout), &got) != nil || got.Blueprint != c.source || len(got.Refusals) != 1 || got.Subject.Name != "gpu-1" || got.Profile != "single-tenant" {
			t.Errorf("%v, %+v", err, got)
		}
		tree.Put("etc/kata-vfio/blueprint.yaml", text)
	}
}
