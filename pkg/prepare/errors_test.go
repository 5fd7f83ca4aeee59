package prepare_test

import (
	"errors"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/prepare"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// wantRefused returns the refusal in err.
func wantRefused(t *testing.T, err error) *rule.RefusedError {
	t.Helper()
	return as[*rule.RefusedError](t, err)
}

// as returns the error of type E in err, and fails the test without one.
func as[E error](t *testing.T, err error) E {
	t.Helper()
	var e E
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a %T", err, e)
	}
	return e
}

// wantQuarantined returns the quarantine in err.
func wantQuarantined(t *testing.T, err error) *prepare.QuarantinedError {
	t.Helper()
	return as[*prepare.QuarantinedError](t, err)
}
