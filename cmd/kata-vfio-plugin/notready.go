package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/node"
	"github.com/kata-vfio/kata-vfio/pkg/plan"
)

// published reads what the plugin published last. It is empty for an unreadable file: no plugin has published in this boot, or
// only root may read it.
func (o *options) published(bootID string) *facts.Published {
	data, err := os.ReadFile(filepath.Join(o.node.Root, cmp.Or(o.node.RunDir, node.DefaultRunDir), facts.PublishedFile))
	var published facts.Published
	// A captured tree may have the file of an earlier boot, which says nothing about this one.
	if err != nil || json.Unmarshal(data, &published) != nil || bootID == "" || published.BootID != bootID {
		return &facts.Published{}
	}
	return &published
}

// printNotReady prints why the node refuses all new claims.
func printNotReady(w io.Writer, why *plan.NotReady) error {
	if why == nil {
		return nil
	}
	_, err := fmt.Fprintf(w, "\nThe node refuses all new claims (%s), and all its devices are tainted: %s\n", why.Obstacle, why.Text)
	return err
}
