package docs_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/test/docs"
)

// Who is on call pastes the blocks: each variable is set in its entry or at the document's top, and nothing stands for a value.
func TestRunbookCanBePasted(t *testing.T) {
	blocks := regexp.MustCompile("(?ms)^## |^ *```sh\n(.*?)^ *```$")
	sets, uses := regexp.MustCompile(`(?m)(?:^|\s)([A-Z]+)=`), regexp.MustCompile(`\$([A-Z]+)`)
	placeholder := regexp.MustCompile(`(?:^|[ =/])(?:[A-Z]{2,})(?:$|[ :/])|<[a-z]`)
	top, entry, inEntry := map[string]bool{}, map[string]bool{}, false
	for _, m := range blocks.FindAllStringSubmatch(docs.Read(t, "deploy/RUNBOOK.md"), -1) {
		if m[1] == "" {
			entry, inEntry = map[string]bool{}, true
			continue
		}
		for _, set := range sets.FindAllStringSubmatch(m[1], -1) {
			entry[set[1]], top[set[1]] = true, top[set[1]] || !inEntry
		}
		for _, use := range uses.FindAllStringSubmatch(m[1], -1) {
			if !entry[use[1]] && !top[use[1]] {
				t.Errorf("$%s is not set before:\n%s", use[1], m[1])
			}
		}
		for line := range strings.Lines(m[1]) {
			code, _, _ := strings.Cut(line, " #")
			if placeholder.MatchString(strings.TrimSpace(code)) {
				t.Errorf("a word stands for a value, which a variable could have: %s", code)
			}
		}
		bash := exec.CommandContext(t.Context(), "bash", "-n")
		bash.Stdin = strings.NewReader(m[1])
		if out, err := bash.CombinedOutput(); err != nil {
			t.Errorf("%v: %s:\n%s", err, out, m[1])
		}
	}
	if !top["NODE"] || !top["P"] {
		t.Errorf("the document's top sets %v", top)
	}
}

// Who is woken at night reads first what is broken for whom, and whether it can wait.
func TestRunbookSaysImpactAndUrgency(t *testing.T) {
	_, text, _ := strings.Cut(docs.Read(t, "deploy/RUNBOOK.md"), "\n## ")
	impact := regexp.MustCompile(`(?m)\A.+\n\n\*\*Impact\*\*: .+\. \*\*Urgency\*\*: .+\.$`)
	others := []string{"Nodes without SSH", "Collect a support bundle", "Codes"}
	for entry := range strings.SplitSeq(text, "\n## ") {
		if title, _, _ := strings.Cut(entry, "\n"); !slices.Contains(others, title) && !impact.MatchString(entry) {
			t.Errorf("%q does not begin with its impact and urgency", title)
		}
	}
}

// TestRunbookLogIsReadable: what the function log prints of a line of the plugin's log.
func TestRunbookLogIsReadable(t *testing.T) {
	_, script, found := strings.Cut(docs.Read(t, "deploy/RUNBOOK.md"), "--since=1h | ")
	script, _, ends := strings.Cut(script, "; }\n")
	if !found || !ends {
		t.Fatal("the function log has no filter")
	}
	for line, want := range map[string]string{
		`{"time":"2026-11-28T12:00:00Z","level":"INFO","msg":"claim prepared","claim":"team-a/train","resets":2}`: `2026-11-28T12:00:00Z INFO claim prepared  "claim":"team-a/train","resets":2`,
		`{"time":"2026-11-28T12:00:00Z","level":"INFO","msg":"serves"}`:                                           `2026-11-28T12:00:00Z INFO serves  `,
		`panic: no JSON`: `panic: no JSON`,
	} {
		sh := exec.CommandContext(t.Context(), "sh", "-c", script)
		sh.Stdin = strings.NewReader(line + "\n")
		out, err := sh.CombinedOutput()
		if got := strings.TrimSuffix(string(out), "\n"); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
}

// TestRunbookListsDevicesThatWait: what the command for devices that wait to be sanitized prints of slices, as kubectl runs its template.
func TestRunbookListsDevicesThatWait(t *testing.T) {
	_, text, _ := strings.Cut(docs.Section(t, "deploy/RUNBOOK.md", "Device waits to be sanitized"), "go-template='")
	text, _, found := strings.Cut(text, "'\n")
	if !found {
		t.Fatal("the entry has no template")
	}
	const list = `
items:
- spec: {nodeName: worker-1, sharedCounters: [{name: pf}]}
- spec:
    nodeName: worker-1
    devices:
    - {name: gpu-0000-3b-00-0, taints: [{key: kata-vfio.dev/audit, value: critical}, {key: kata-vfio.dev/sanitizing, value: memory}]}
    - {name: gpu-0000-5e-00-0}
- spec: {nodeName: worker-2, devices: [{name: gpu-0000-86-00-0, taints: [{key: kata-vfio.dev/sanitizing, value: nvme}]}]}
`
	var published any
	if err := yaml.Unmarshal([]byte(list), &published); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := template.Must(template.New("list").Parse(text)).Execute(&got, published); err != nil {
		t.Fatal(err)
	}
	if want := "worker-1 gpu-0000-3b-00-0 memory\nworker-2 gpu-0000-86-00-0 nvme\n"; got.String() != want {
		t.Errorf("got %q, want %q", got.String(), want)
	}
}

// TestRunbookIndexHasEachAlert: who has an alert's name finds its entry in the table at the top.
func TestRunbookIndexHasEachAlert(t *testing.T) {
	index, _, _ := strings.Cut(docs.Read(t, "deploy/RUNBOOK.md"), "\n```sh\n")
	alert := regexp.MustCompile(`(?m)^  - alert: (\w+)$`)
	var alerts []string
	for _, m := range alert.FindAllStringSubmatch(docs.Read(t, "deploy/helm/kata-vfio/monitoring/alerts.yaml"), -1) {
		alerts = append(alerts, m[1])
		if !strings.Contains(index, "`"+m[1]+"`") {
			t.Errorf("the table at the top of the runbook has no %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile("`(KataVFIO\\w+)`").FindAllStringSubmatch(index, -1) {
		if !slices.Contains(alerts, m[1]) {
			t.Errorf("the table at the top of the runbook names %s, which is no alert", m[1])
		}
	}
}

// TestRunbookRunsCommandsOnNodes: each way to run a command on a node passes its words on as they are.
func TestRunbookRunsCommandsOnNodes(t *testing.T) {
	runbook := docs.Read(t, "deploy/RUNBOOK.md")
	ways := regexp.MustCompile(`(?m)^host\(\) \{.*\}$`).FindAllString(runbook, -1)
	if len(ways) != 3 {
		t.Fatalf("the runbook has %d functions named host, want 3: SSH, a pod, and a pod without the node's programs", len(ways))
	}
	pod := regexp.MustCompile(`(?m)^IMAGE=.*\n(DEBUG=.*)\n(.*)$`).FindString(runbook)
	stubs := t.TempDir()
	for name, script := range map[string]string{
		"ssh":    `[ "$1" = worker-1 ] && shift && exec sh -c "$*"`,
		"sudo":   `exec "$@"`,
		"chroot": `[ "$1" = /host ] && shift && exec "$@"`,
		"kubectl": `case "$3" in
debug) echo "Creating debugging pod node-debugger-worker-1-abcde with container debugger on node worker-1.";;
exec) [ "$4" = node-debugger-worker-1-abcde ] && shift 5 && exec "$@";;
wait) [ "$4" = pod/node-debugger-worker-1-abcde ];;
esac`,
	} {
		if err := os.WriteFile(filepath.Join(stubs, name), []byte("#!/bin/bash\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, way := range ways {
		bash := exec.CommandContext(t.Context(), "bash", "-e", "-c", "NODE=worker-1\n"+pod+"\n"+way+"\nhost printf '<%s>' 'Out of memory' '*' \"it's\"")
		bash.Env = append(os.Environ(), "PATH="+stubs+":"+os.Getenv("PATH"))
		if out, err := bash.CombinedOutput(); err != nil || string(out) != "<Out of memory><*><it's>" {
			t.Errorf("%s: got %q, %v", way, out, err)
		}
	}
}
