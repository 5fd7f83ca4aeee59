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

// TestFoldLosesNoText: each of these is about the device of another, and says something else of it.
func TestFoldLosesNoText(t *testing.T) {
	const pair, other, third = "gpu-0000-3b-00-0-vf-0000-3c-10-1", "gpu-0000-5b-00-0-vf-0000-5c-10-1", "gpu-0000-6b-00-0-vf-0000-6c-10-1"
	for name, c := range map[string]struct{ texts, want []string }{
		"both functions of a pair": {
			[]string{pair + ": 0000:3b:00.0 fails", pair + ": 0000:3c:10.1 fails"},
			[]string{pair + ": 0000:3b:00.0 fails", pair + ": 0000:3c:10.1 fails"},
		},
		"another function of another pair": {
			[]string{pair + ": 0000:3b:00.0 fails", other + ": 0000:5c:10.1 fails", third + ": 0000:6c:10.1 fails"},
			[]string{pair + ": 0000:3b:00.0 fails", other + ": 0000:5c:10.1 fails (2 devices: also gpu-0000-6b-00-0)"},
		},
		"two neighbors of a device, and of another": {
			[]string{
				"0000:3b:00.0 sees 0000:3c:00.0", "0000:3b:00.0 sees 0000:3d:00.0", "0000:3b:00.0 sees 0000:3d:00.0",
				"0000:5b:00.0 sees 0000:5c:00.0", "0000:5b:00.0 sees 0000:5d:00.0",
			},
			[]string{"0000:3b:00.0 sees 0000:3c:00.0 (2 devices: also 0000:5b:00.0)", "0000:3b:00.0 sees 0000:3d:00.0 (2 devices: also 0000:5b:00.0)"},
		},
	} {
		if diff := cmp.Diff(c.want, output.Fold(c.texts)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
