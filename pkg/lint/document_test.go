package lint_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/lint"
)

// badPod is a pod that is refused.
const badPod = `{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad"}, "spec": {"hostPID": true, "containers": []}}`

// said is a report in short: of each problem the line, the object, and the code, or without one the text.
func said(r *lint.Report) (all []string) {
	for _, p := range r.Problems {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%d %s", p.Line, p.Object))+" "+cmp.Or(string(p.Code), p.Text))
	}
	return all
}

// TestItemsOfAMergeKey have no place of their own in the text: the line is that of the list.
func TestItemsOfAMergeKey(t *testing.T) {
	l := linter(t)
	l.Add("list.yaml", []byte("# a list\napiVersion: v1\nkind: List\n<<: {items: ["+badPod+"]}\n"))
	if got, want := said(report(t, l)), []string{"2 Pod/bad HostAccessNotAllowed"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
