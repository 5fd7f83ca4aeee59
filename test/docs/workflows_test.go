package docs_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/kata-vfio/kata-vfio/test/docs"
)

// workflow is what is looked at of a workflow of GitHub Actions.
type workflow struct {
	Permissions map[string]string
	Jobs        map[string]struct {
		If          string
		Permissions map[string]string
		Steps       []struct {
			Uses, Run, If string
			With          map[string]any
		}
	}
}

// workflows are all, by the names of their files.
func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(docs.Root(t), ".github/workflows/*"))
	if err != nil || len(files) < 4 {
		t.Fatalf("the workflows are %v, %v", files, err)
	}
	all := map[string]workflow{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var w workflow
		if err := yaml.Unmarshal(content, &w); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = w
	}
	return all
}

// A tag of an action can be moved to other code; a commit can't.
func TestActionsArePinned(t *testing.T) {
	pinned := regexp.MustCompile(`uses: ([\w-]+/[\w/-]+)@([0-9a-f]{40} # v\d+\.\d+\.\d+)$`)
	versions := map[string]string{} // of each action, in all workflows
	for name := range workflows(t) {
		for line := range strings.Lines(docs.Read(t, ".github/workflows/"+name)) {
			line = strings.TrimRight(line, "\n")
			if !strings.Contains(line, "uses:") {
				continue
			}
			m := pinned.FindStringSubmatch(line)
			if m == nil {
				t.Errorf("%s: %q is not pinned: name a commit, and its version in a comment", name, line)
				continue
			}
			action, commit := m[1], m[2]
			if other, ok := versions[action]; ok && other != commit {
				t.Errorf("%s: %s is %s, and elsewhere %s", name, action, commit, other)
			}
			versions[action] = commit
		}
	}
}

// Each job that may write is listed here, with what it may.
func TestWorkflowsMayOnlyRead(t *testing.T) {
	may := map[string]string{
		"codeql.yml/analyze":  "contents: read, security-events: write",
		"release.yml/publish": "attestations: write, contents: write, id-token: write, packages: write",
	}
	for name, w := range workflows(t) {
		if got := permissions(w.Permissions); got != "contents: read" {
			t.Errorf("%s has the permissions %q, want contents: read", name, got)
		}
		for job, is := range w.Jobs {
			if got := permissions(is.Permissions); got != may[name+"/"+job] {
				t.Errorf("%s: the job %s has the permissions %q, want %q", name, job, got, may[name+"/"+job])
			}
		}
	}
}

func permissions(all map[string]string) string {
	var list []string
	for scope, access := range all {
		list = append(list, scope+": "+access)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func TestWorkflowsMakeWhatThereIs(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(docs.Read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	made := map[string][]string{}
	for name, w := range workflows(t) {
		for _, job := range w.Jobs {
			for _, step := range job.Steps {
				for _, m := range regexp.MustCompile(`\bmake ((?:[a-z][a-z0-9-]*\b ?)+)`).FindAllStringSubmatch(step.Run, -1) {
					made[name] = append(made[name], strings.Fields(m[1])...)
				}
			}
		}
		for _, target := range made[name] {
			if !targets[target] {
				t.Errorf("%s makes %s, and the Makefile has no such target", name, target)
			}
		}
	}
	for _, want := range []string{"release", "release-check", "release-publish"} {
		if !slices.Contains(made["release.yml"], want) {
			t.Errorf("release.yml does not make %s", want)
		}
	}
}

// What GitHub checks out for a pull request by default is a merge commit of its own, which the check refuses. Only pull requests have a head.
func TestCommitsOfTheBranchAreChecked(t *testing.T) {
	job := workflows(t)["ci.yml"].Jobs["commits"]
	if job.If != "github.event_name == 'pull_request'" || len(job.Steps) != 2 || !strings.HasPrefix(job.Steps[1].Run, "scripts/check-commits.sh ") {
		t.Fatalf("the job is %+v; want one of pull requests only that checks out and runs check-commits.sh", job)
	}
	if ref := job.Steps[0].With["ref"]; ref != "${{ github.event.pull_request.head.sha }}" {
		t.Errorf("it checks out %v, want the branch's last commit", ref)
	}
}

// A job that passes without having tested anything says so.
func TestWorkflowsSayWhatTheyLeaveOut(t *testing.T) {
	const found, missing = "steps.kvm.outputs.found == 'yes'", "steps.kvm.outputs.found != 'yes'"
	conditional := 0
	for name, w := range workflows(t) {
		for job, is := range w.Jobs {
			said := map[string]string{} // by condition
			for _, step := range is.Steps {
				said[step.If] += step.Run
			}
			if _, ok := said[found]; !ok {
				continue
			}
			conditional++
			if !strings.Contains(said[missing], "::warning ") || !strings.Contains(said[missing], "$GITHUB_STEP_SUMMARY") {
				t.Errorf("%s: the job %s says %q where there is no KVM, want a warning and a line of the summary", name, job, said[missing])
			}
		}
	}
	if conditional != 2 {
		t.Errorf("%d jobs look for KVM, want those of ci.yml and nightly.yml", conditional)
	}
}

// A key that does not change with what is built has the next run build all of it again, each time.
func TestCacheFollowsWhatIsBuilt(t *testing.T) {
	sums, err := filepath.Glob(filepath.Join(docs.Root(t), "test/e2e/*/*.sum"))
	if err != nil || len(sums) < 6 {
		t.Fatalf("the checksums are %v, %v", sums, err)
	}
	for _, job := range []string{"cluster", "node"} {
		var key string
		for _, step := range workflows(t)["ci.yml"].Jobs[job].Steps {
			if strings.HasPrefix(step.Uses, "actions/cache@") {
				key, _ = step.With["key"].(string)
			}
		}
		var patterns []string
		for _, m := range regexp.MustCompile(`'([^']+)'`).FindAllStringSubmatch(key, -1) {
			patterns = append(patterns, filepath.Join(docs.Root(t), m[1]))
		}
		for _, sum := range sums {
			matches := func(pattern string) bool { ok, _ := filepath.Match(pattern, sum); return ok }
			if !slices.ContainsFunc(patterns, matches) {
				t.Errorf("the key %q of the job %s does not follow %s", key, job, sum)
			}
		}
	}
}

// What the release workflow publishes is what the chart takes.
func TestReleaseWorkflowPublishesToTheChartsRegistry(t *testing.T) {
	var values struct {
		Image    struct{ Repository string }
		Guestnet struct{ Image struct{ Repository string } }
	}
	if err := yaml.Unmarshal([]byte(docs.Read(t, "deploy/helm/kata-vfio/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	text := docs.Read(t, ".github/workflows/release.yml")
	for _, want := range []string{
		"REGISTRY: " + filepath.Dir(values.Image.Repository) + "\n", "subject-name: " + values.Image.Repository + "\n",
		"subject-name: " + values.Guestnet.Image.Repository + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("release.yml does not have %q", want)
		}
	}
}

// A run that was cut off leaves a draft, and a second run must publish: it makes the release again unless it is published. It never deletes
// one that is, also if GitHub does not answer.
func TestReleaseWorkflowPublishesAfterADraft(t *testing.T) {
	script := ""
	for _, step := range workflows(t)["release.yml"].Jobs["publish"].Steps {
		if strings.Contains(step.Run, "gh release create") {
			script = step.Run
		}
	}
	const gh = `#!/bin/sh
[ "$2" = view ] || { echo "$2" >>"$CALLS"; exit 0; }
[ -n "$DRAFT" ] || exit 1
echo "$DRAFT"
`
	for draft, want := range map[string]string{"": "create\n", "true": "delete\ncreate\n", "false": ""} {
		dir := t.TempDir()
		calls := filepath.Join(dir, "calls")
		if err := errors.Join(os.WriteFile(filepath.Join(dir, "gh"), []byte(gh), 0o755), os.WriteFile(calls, nil, 0o644)); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "bash", "-ec", script) //nolint:gosec // of the workflow
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "CALLS=" + calls, "DRAFT=" + draft, "GITHUB_REF_NAME=v1.2.3"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("isDraft %q: %v\n%s", draft, err, out)
		}
		if got, err := os.ReadFile(calls); err != nil || string(got) != want {
			t.Errorf("isDraft %q: got the calls %q, %v; want %q", draft, got, err, want)
		}
	}
}
