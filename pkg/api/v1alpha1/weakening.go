package v1alpha1

import (
	"fmt"
	"strings"
)

// WeakensIsolationError says that a claim asks for something that takes away
// from the isolation between tenants. A claim is the tenant's; only a
// DeviceClass, which is the admin's, may say such a thing.
type WeakensIsolationError struct {
	Kind string
	// Settings are the fields of Kind at fault with their values: "trust: true".
	Settings []string
}

func (e *WeakensIsolationError) Error() string {
	return fmt.Sprintf("%s: not accepted from a ResourceClaim, since it weakens isolation: %s; "+
		"remove it, or have the cluster's admin put it into a DeviceClass", e.Kind, strings.Join(e.Settings, ", "))
}

// weakening collects the parameters of one config that weaken isolation.
type weakening struct {
	kind     string
	settings []string
}

// add notes the field if it weakens.
func (w *weakening) add(weakens bool, field string, value any) {
	if weakens {
		w.settings = append(w.settings, fmt.Sprintf("%s: %v", field, value))
	}
}

// err returns a [WeakensIsolationError], and nil when nothing weakens.
func (w *weakening) err() error {
	if len(w.settings) == 0 {
		return nil
	}
	return &WeakensIsolationError{Kind: w.kind, Settings: w.settings}
}

func isTrue(b *bool) bool { return b != nil && *b }
