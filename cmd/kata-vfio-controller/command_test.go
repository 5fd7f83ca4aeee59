package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command/commandtest"
	"github.com/kata-vfio/kata-vfio/test/docs"
)

// invoke runs the command line as main does, and returns its output and its exit code.
func invoke(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, warned bytes.Buffer
	if err := command.Tree(newCommand)(t.Context(), append([]string{}, args...), &out, &warned); err != nil {
		code = command.Fail("kata-vfio-controller", command.ExitCode)(&warned, err)
	}
	return out.String(), warned.String(), code
}

// sanitizers is a file that is right.
const sanitizers = `apiVersion: resource.kata-vfio.dev/v1alpha1
kind: Sanitizers
namespace: kata-vfio-sanitizing
deviceClass: sanitize.kata-vfio.dev
profiles:
- name: memory
  image: registry.example/s@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
`

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sanitizers.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWrongCommandLinesAreRefused(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "")
	const driver = "--shared-driver=gpu.example.com"
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"no task":                {[]string{"--namespace", "n"}, "--shared-driver, --sanitizers, --tenants, --classes and --count-gpus are missing"},
		"no file of sanitizers":  {[]string{"--namespace", "n", "--sanitizers", "testdata/none"}, "read the sanitizing stages"},
		"a file of another kind": {[]string{"--namespace", "n", "--sanitizers", file(t, "kind: NodeConfig")}, "sanitizing stages"},
		"an image by tag":        {[]string{"--namespace", "n", "--sanitizers", file(t, strings.Replace(sanitizers, "@sha256:", ":", 1))}, "has no digest"},
		"unknown resources":      {[]string{"--namespace", "n", "--sanitizers", file(t, sanitizers+"  resources: {limit: {}}\n")}, "decode the resources of sanitizer profile memory"},
		"tenants alone":          {[]string{"--namespace", "n", "--tenants", "--kubeconfig", "testdata/none"}, "find the cluster"},
		"tenants by a label":     {[]string{"--namespace", "n", "--tenants", "--tenant-label", "example.com/team", "--kubeconfig", "testdata/none"}, "find the cluster"},
		"a count of GPUs alone":  {[]string{"--namespace", "n", "--count-gpus", "--kubeconfig", "testdata/none"}, "find the cluster"},
		"a label alone":          {[]string{driver, "--namespace", "n", "--tenant-label", "team"}, "--tenants is missing"},
		"domains alone":          {[]string{driver, "--namespace", "n", "--reserve-domains"}, "--tenants is missing"},
		"no label's key":         {[]string{"--namespace", "n", "--tenants", "--tenant-label", "team=a"}, `--tenant-label "team=a": want the key of a label`},
		"sanitizers alone":       {[]string{"--namespace", "n", "--sanitizers", file(t, sanitizers), "--kubeconfig", "testdata/none"}, "find the cluster"},
		"our own driver":         {[]string{"--namespace", "n", "--shared-driver", "kata-vfio.dev"}, "want the name of another DRA driver"},
		"no namespace":           {[]string{driver}, "--namespace is empty"},
		"no identity":            {[]string{driver, "--namespace", "n", "--identity", ""}, "--identity is empty"},
		"another level":          {[]string{driver, "--log-level", "trace"}, "want debug, info, warn or error"},
		"a certificate alone":    {[]string{driver, "--namespace", "n", "--metrics-cert-file", "tls.crt"}, "set both or neither"},
		"an argument":            {[]string{"gpu.example.com"}, "unexpected argument"},
		"an unknown flag":        {[]string{"--shared-drivers", "a"}, "did you mean --shared-driver?"},
		"no cluster to be found": {[]string{driver, "--namespace", "n", "--kubeconfig", "testdata/none"}, "find the cluster"},
	} {
		if _, stderr, code := invoke(t, tt.args...); code != command.Usage || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: code %d, want %q: %s", name, code, tt.want, stderr)
		}
	}
}

func TestHelpDocumentsExitCodes(t *testing.T) {
	stdout, _, code := invoke(t, "--help")
	for _, want := range []string{"\n  1  something failed", "--shared-driver strings", "--tenant-label string", "--metrics-open"} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("the help lacks %q (code %d)", want, code)
		}
	}
	if stdout, _, _ := invoke(t, "version"); !strings.HasPrefix(stdout, "kata-vfio-controller ") {
		t.Errorf("version: %q", stdout)
	}
}

func TestCommandsAreAlike(t *testing.T) { commandtest.Check(t, newCommand(io.Discard, io.Discard)) }

// The commands in the documents must exist.
func TestDocumentsRunCommandsThatExist(t *testing.T) {
	docs.CheckCommands(t, "kata-vfio-controller", func() *cobra.Command { return newCommand(io.Discard, io.Discard) }, docs.All(t)...)
}
