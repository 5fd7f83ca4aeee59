package nodeconfig

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
)

// Digest returns the SHA-256 of a node config as JSON, in hexadecimal. The ledger records it at each start of the plugin, so that an
// auditor can see since when a config applies.
func Digest(c *v1alpha1.NodeConfig) (string, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("encode the node config: %w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text)), nil
}
