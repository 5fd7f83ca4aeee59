package lint_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/lint"
)

// Two pods, of which only the second one is refused.
const (
	goodPod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "good"}, "spec": {"containers": []}}`
	badPod  = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": {"hostPID": true, "containers": []}}`
)

// said is a report in short: of each problem the line, the object, and the code, or without one the text.
func said(r *lint.Report) (all []string) {
	for _, p := range r.Problems {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%d %s", p.Line, p.Object))+" "+cmp.Or(string(p.Code), p.Text))
	}
	return all
}

// TestNothingOfAFileIsPassedOver: what kubectl applies of a file is judged, and what it refuses or drops is a problem.
func TestNothingOfAFileIsPassedOver(t *testing.T) {
	const (
		refused  = " Pod/bad HostAccessNotAllowed"
		podList  = "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: bad}\n  spec:\n    hostPID: true\n    containers: []\n"
		list     = "apiVersion: v1\nkind: List\nitems:\n- "
		noKind   = " List no Kubernetes object: apiVersion or kind is missing"
		noObject = " List no Kubernetes object: want apiVersion, kind and other fields"
		sameLine = " no YAML: only a comment may follow --- on its line, and the document begins on the next one"
		more     = " no YAML: more follows after the end of the document; begin each document with a line of ---"
	)
	for name, c := range map[string]struct{ text, want string }{
		"a comment after the divider": {goodPod + "\n--- # the pod\n" + badPod, "3" + refused},
		"spaces after the divider":    {goodPod + "\n---  \r\n" + badPod, "3" + refused},
		"a JSON stream":               {"\n" + goodPod + "\n" + badPod + "\n", "3" + refused},
		"a JSON stream in one line":   {goodPod + badPod, "1" + refused},
		"a JSON stream with breaks":   {goodPod + "\n\n" + strings.ReplaceAll(badPod, ", ", ",\n"), "6" + refused},
		"a list as the API prints it": {podList, "6" + refused},
		"an item without a kind":      {list + goodPod + "\n- metadata: {name: one}\n", "5" + noKind},
		"an item that is a text":      {list + "Pod\n", "4" + noObject},
		"text on the divider's line":  {"# pods\n--- " + badPod, "2" + sameLine},
		"text after the document":     {goodPod + "\n{a: b}\n", "2" + more},
		"an end without a divider":    {goodPod + "\n...\n" + badPod + "\n", "3" + more},
	} {
		l := linter(t)
		l.Add("pods.yaml", []byte(c.text))
		if got := said(report(t, l)); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestItemsOfAMergeKey have no place of their own in the text: the line is that of the list.
func TestItemsOfAMergeKey(t *testing.T) {
	l := linter(t)
	l.Add("list.yaml", []byte("# a list\napiVersion: v1\nkind: List\n<<: {items: ["+badPod+"]}\n"))
	if got, want := said(report(t, l)), []string{"2 Pod/bad HostAccessNotAllowed"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
