package bootstrap

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
)

// BlueprintFile is where a node's blueprint is, below its root.
const BlueprintFile = "etc/kata-vfio/blueprint.yaml"

// Blueprint returns the text of the node's blueprint and where it is from: the node's file, or the blueprint that was
// last applied. Without either, the source is empty, and the default applies.
func (e *Engine) Blueprint() (text, source string, err error) {
	data, err := e.Tree.ReadAtMost(BlueprintFile, blueprint.MaxSize+1)
	if err == nil {
		return string(data), "/" + BlueprintFile, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("read the blueprint: %w", err)
	}
	j, err := e.load()
	if err != nil {
		return "", "", err
	}
	if j.Blueprint == "" {
		return "", "", nil
	}
	return j.Blueprint, "the blueprint that was last applied", nil
}
