package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// seedTenants gives the records of [seed] the IDs of tenants, by the claims' names.
func seedTenants(t *testing.T, root string, ids map[string]string) {
	t.Helper()
	seedOf(t, root, bootID(t, root))
	store, err := journal.Open(filepath.Join(root, "var/lib/kata-vfio/journal"))
	if err != nil {
		t.Fatal(err)
	}
	records, problems := store.List()
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for _, rec := range records {
		rec.Plan.Claim.Tenant = ids[rec.Plan.Devices[0].Address.String()]
		if err := store.Save(rec); err != nil {
			t.Fatal(err)
		}
	}
}

func putFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestStatusShowsExclusiveDomains: who has each domain, and which devices are free there. The plugin's own config comes first.
func TestStatusShowsExclusiveDomains(t *testing.T) {
	const blue, red = "0123456789abcdef", "fedcba9876543210"
	const config = "apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\ndevices:\n- {name: gpus, match: {types: [gpu]}, exclusive: [%s]}\n"
	gpus := func(kinds string) string { return strings.Replace(config, "%s", kinds, 1) }
	first, second := "0000:3b:00.0", "0000:62:00.0"
	for name, tt := range map[string]struct {
		file, published string
		ids             map[string]string
		want, not       []string
	}{
		"none is exclusive": {"", "", nil, nil, []string{"Exclusive"}},
		"one tenant": {
			gpus("Node"), "",
			map[string]string{first: blue, second: blue},
			[]string{"Exclusive node: tenant " + blue + " has 0000:21:02.0, 0000:3b:00.0, 0000:62:00.0, 0000:62:00.1, 0000:70:00.0, 0000:70:00.1, 0000:70:00.2, 0000:70:00.3; kept for it: 0000:50:00.0\n"},
			nil,
		},
		"two tenants": {
			gpus("Node"), "",
			map[string]string{first: blue, second: red},
			[]string{"Exclusive node: several tenants have 0000:21:02.0, 0000:3b:00.0, 0000:62:00.0, 0000:62:00.1, 0000:70:00.0, 0000:70:00.1, 0000:70:00.2, 0000:70:00.3; no claim can get: 0000:50:00.0\n"},
			nil,
		},
		"an unknown tenant": {
			gpus("Card"), "",
			map[string]string{first: blue},
			[]string{
				"Exclusive card 0000:3b:00.0: tenant " + blue + " has 0000:3b:00.0; kept for it: none\n",
				"Exclusive card 0000:62:00.0: an unknown tenant has 0000:62:00.0, 0000:62:00.1; no claim can get: none\n",
				"Exclusive card 0000:50:00.0: no tenant has it; free: 0000:50:00.0\n",
			},
			nil,
		},
		"the plugin has another config": {
			gpus("Card"), `{"bootID":"BOOT","config":{"apiVersion":"resource.kata-vfio.dev/v1alpha1","kind":"NodeConfig","devices":[{"match":{"types":["gpu"]},"exclusive":["Node"]}]}}`,
			map[string]string{first: blue, second: blue},
			[]string{"Exclusive node: tenant " + blue},
			[]string{"Exclusive card"},
		},
		"the plugin had another config before the boot": {
			gpus("Card"), `{"bootID":"earlier","config":{"devices":[{"match":{"types":["gpu"]},"exclusive":["Node"]}]}}`,
			map[string]string{first: blue, second: blue},
			[]string{"Exclusive card"},
			[]string{"Exclusive node"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := newRoot(t)
			seedTenants(t, root, tt.ids)
			if tt.file != "" {
				putFile(t, filepath.Join(root, "etc/kata-vfio/node.yaml"), tt.file)
			}
			if tt.published != "" {
				putFile(t, filepath.Join(root, "run/kata-vfio/published.json"), strings.Replace(tt.published, "BOOT", bootID(t, root), 1))
			}
			got := invoke(t, "status", "--root", root)
			if got.code != 0 {
				t.Errorf("exit code %d: %s", got.code, got.stderr)
			}
			for _, want := range tt.want {
				if !strings.Contains(got.stdout, want) {
					t.Errorf("it lacks %q:\n%s", want, got.stdout)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(got.stdout, not) {
					t.Errorf("it says %q:\n%s", not, got.stdout)
				}
			}
		})
	}
}

// TestExclusiveDomainsOfStatusForMachines: each held function has its tenant.
func TestExclusiveDomainsOfStatusForMachines(t *testing.T) {
	root := newRoot(t)
	seedTenants(t, root, map[string]string{"0000:3b:00.0": "0123456789abcdef"})
	putFile(t, filepath.Join(root, "etc/kata-vfio/node.yaml"),
		"apiVersion: resource.kata-vfio.dev/v1alpha1\nkind: NodeConfig\ndevices:\n- {name: gpus, match: {types: [gpu]}, exclusive: [Node]}\n")
	var got struct{ ExclusiveDomains json.RawMessage }
	out := invoke(t, "status", "--root", root, "-o", "json").stdout
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	const want = `[{"domain":{"kind":"Node"},"rules":["rule 1 (gpus)"],"tenant":"several","held":[` +
		`{"address":"0000:21:02.0","tenant":"unknown"},{"address":"0000:3b:00.0","tenant":"0123456789abcdef"},{"address":"0000:62:00.0","tenant":"unknown"},{"address":"0000:62:00.1","tenant":"unknown"},` +
		`{"address":"0000:70:00.0","tenant":"unknown"},{"address":"0000:70:00.1","tenant":"unknown"},{"address":"0000:70:00.2","tenant":"unknown"},{"address":"0000:70:00.3","tenant":"unknown"}],` +
		`"free":["0000:50:00.0"]}]`
	var compact strings.Builder
	for line := range strings.SplitSeq(string(got.ExclusiveDomains), "\n") {
		compact.WriteString(strings.ReplaceAll(strings.TrimSpace(line), `": `, `":`))
	}
	if compact.String() != want {
		t.Errorf("got\n%s, want\n%s", compact.String(), want)
	}
}

// TestStatusWithoutAConfigSaysSo: a config that can't be read hides domains, and nothing else.
func TestStatusWithoutAConfigSaysSo(t *testing.T) {
	root := newRoot(t)
	seedTenants(t, root, nil)
	putFile(t, filepath.Join(root, "etc/kata-vfio/node.yaml"), "kind: other")
	got := invoke(t, "status", "--root", root)
	if got.code == 0 || !strings.Contains(got.stderr, "find the exclusive domains and partitions: node config") || !strings.Contains(got.stdout, oneUID1) {
		t.Errorf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
	}
}
