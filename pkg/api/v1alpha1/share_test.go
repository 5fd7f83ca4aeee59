package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

func TestShareOf(t *testing.T) {
	for text, want := range map[string]int{`0`: 0, `2`: 2, `9`: 8, `"0%"`: 0, `"1%"`: 1, `"25%"`: 2, `"26%"`: 3, `"100%"`: 8} {
		var s v1alpha1.Share
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if got := s.Of(8); got != want {
			t.Errorf("%s of 8 devices = %d, want %d", text, got, want)
		}
		if back, err := json.Marshal(s); err != nil || string(back) != text {
			t.Errorf("%s becomes %s, %v", text, back, err)
		}
	}
}
