package kube_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/kube"
)

const config = `
apiVersion: v1
kind: Config
current-context: one
clusters:
- {name: a, cluster: {server: "https://127.0.0.1:1"}}
- {name: b, cluster: {server: "https://127.0.0.1:2"}}
contexts:
- {name: one, context: {cluster: a, namespace: team-a}}
- {name: two, context: {cluster: b}}
`

// parse returns the flags of a command line.
func parse(t *testing.T, add func(*kube.Flags, *cobra.Command), args ...string) *kube.Flags {
	t.Helper()
	var f kube.Flags
	cmd := &cobra.Command{Use: "prog", Run: func(*cobra.Command, []string) {}}
	add(&f, cmd)
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return &f
}

// TestFlagsNameTheCluster as kubectl's do.
func TestFlagsNameTheCluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	for line, want := range map[string]string{
		"": "https://127.0.0.1:1 team-a", "--context two": "https://127.0.0.1:2 default", "-n x": "https://127.0.0.1:1 x",
		"--namespace x --context two": "https://127.0.0.1:2 x", "-s https://127.0.0.1:3 --as olga": "https://127.0.0.1:3 team-a", "--kubeconfig " + file: "https://127.0.0.1:1 team-a",
	} {
		f := parse(t, (*kube.Flags).AddAll, strings.Fields(line)...)
		got, err := f.Config("prog")
		if err != nil {
			t.Fatal(err)
		}
		namespace, err := f.Namespace()
		if err != nil || got.Host+" "+namespace != want || !strings.HasPrefix(got.UserAgent, "prog/") {
			t.Errorf("%q: %s %s, %s, %v; want %s", line, got.Host, namespace, got.UserAgent, err, want)
		}
		if strings.Contains(line, "olga") && got.Impersonate.UserName != "olga" {
			t.Errorf("%q: as %q", line, got.Impersonate.UserName)
		}
	}
	if got, err := parse(t, (*kube.Flags).Add, "--context", "two").Config("prog"); err != nil || got.Host != "https://127.0.0.1:2" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestConfigWithoutCluster(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("KUBECONFIG", none)
	for _, args := range [][]string{{"--kubeconfig", none}, {"--context", "nothing"}} {
		if got, err := parse(t, (*kube.Flags).AddAll, args...).Config("prog"); command.ExitCode(err) != command.Usage || !strings.Contains(err.Error(), "--kubeconfig") {
			t.Errorf("%v: %+v, %v", args, got, err)
		}
	}
}
