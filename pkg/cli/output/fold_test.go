package output_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

func TestFoldSaysOnceWhatManyDevicesHave(t *testing.T) {
	var texts []string
	for i := range 7 {
		texts = append(texts, fmt.Sprintf("gpu-0000-3b-00-%d: no driver\n    fix: bind 0000:3b:00.%[1]d", i))
	}
	texts = append(texts, "0000:3b:00.0 has no reset", "0000:3b:00.1 has no reset", "0000:3b:00.1 has no reset", "0000:3b:00.1 is in group 7", "no IOMMU", "no IOMMU")
	want := []string{
		"gpu-0000-3b-00-0: no driver (7 devices: also gpu-0000-3b-00-1, gpu-0000-3b-00-2, gpu-0000-3b-00-3 and 3 more)\n    fix: bind 0000:3b:00.0",
		"0000:3b:00.0 has no reset (2 devices: also 0000:3b:00.1)",
		"0000:3b:00.1 is in group 7",
		"no IOMMU",
	}
	if diff := cmp.Diff(want, output.Fold(texts)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := output.Fold(nil); len(got) != 0 {
		t.Errorf("of nothing: %q", got)
	}
}
