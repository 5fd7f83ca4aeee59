package dra

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// DroppedError says that the API server dropped fields of our slices because
// feature gates are off. Without counters two claims could get one piece of
// hardware, so nothing is published until the gates are on.
type DroppedError struct{ Gates []string }

func (e *DroppedError) Error() string {
	gates := strings.Join(e.Gates, ", ")
	if gates == "" {
		gates = "of DRA that this version uses (the API server does not say which it lacks)"
	}
	return fmt.Sprintf("the API server drops fields that keep devices apart: enable the feature gates %s and restart the plugin; until then no device is published", gates)
}

// droppedFields returns a [DroppedError] when err says that fields were
// dropped, else nil.
func droppedFields(err error) *DroppedError {
	var dropped *resourceslice.DroppedFieldsError
	if !errors.As(err, &dropped) {
		return nil
	}
	return &DroppedError{Gates: dropped.DisabledFeatures()}
}
