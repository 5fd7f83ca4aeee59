package progress_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kata-vfio/kata-vfio/test/internal/progress"
)

func TestProgressComesInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		p := progress.New(&said)
		n := 0
		stop := p.Every(15*time.Second, func() string { n++; return fmt.Sprintf("line %d", n) })
		time.Sleep(31 * time.Second)
		stop()
		time.Sleep(time.Minute)
		p.Step("%s", "end")
		if diff := cmp.Diff("[  15s] line 1\n[  30s] line 2\n[  91s] end\n", said.String()); diff != "" {
			t.Errorf("the lines differ (-want +got):\n%s", diff)
		}
	})
}
