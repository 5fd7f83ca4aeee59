//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"

	"github.com/kata-vfio/kata-vfio/test/e2e/node"
)

// testsItself runs `kubectl kata-vfio test` with an image that shows what the stand-in's VM sees, and expects that the node passes. That nothing is left
// is checked after each case.
func testsItself(ctx context.Context, s *site) error {
	r, err := newReader(ctx, s, s.reading, "")
	if err != nil {
		return err
	}
	out, err := r.run(ctx, "kubectl kata-vfio test --image "+node.ShowImage+" --timeout "+vmPodLimit.String())
	s.log("%s", out)
	if err != nil {
		return err
	}
	for _, want := range []string{"✓ boots", "✓ sees its device: 1234:1111, once", "✓ refuses a second pod: SharedClaim", "✓ refuses device nodes", "✓ keeps its device"} {
		if !strings.Contains(out, want) {
			return fmt.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
	return nil
}
