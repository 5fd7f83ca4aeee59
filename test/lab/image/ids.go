package image

import (
	"context"
	"embed"
	"fmt"
)

//go:embed ids
var idsFiles embed.FS

// The directory of labids' build, inside the tools root.
const idsDir = "/build/ids"

// buildIDs builds labids, for both variants; it lies under idsDir afterwards.
func (b *build) buildIDs(ctx context.Context) error {
	if err := b.arrange(idsFiles, "ids", idsDir); err != nil {
		return fmt.Errorf("arrange the sources of labids: %w", err)
	}
	return b.makeModules(ctx, idsDir)
}
