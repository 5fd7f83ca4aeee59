package labtest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/test/lab/remote"
)

// report turns the results into subtests of t.
func report(t *testing.T, pkg string, root *result, err error) {
	t.Helper()
	if root == nil {
		t.Fatalf("run %s in the machine: %v", pkg, err)
	}
	if len(root.children) == 0 {
		t.Errorf("%s ran no tests in the machine", pkg)
	}
	for _, child := range root.children {
		child.replay(t)
	}
	if err != nil && (!isTestFailure(err) || !t.Failed()) {
		t.Errorf("run %s in the machine: %v\n%s", pkg, err, root.output.String())
	}
}

// isTestFailure reports whether an error of a run says that a test failed, which ends the program with status 1: the
// test's own output says the rest.
func isTestFailure(err error) bool {
	var failed *remote.ExitError
	return errors.As(err, &failed) && failed.Code == 1
}

// failuresOf are the failures of a package's run: the tests', and the package's own where no test explains the error.
func failuresOf(pkg string, root *result, err error) []failure {
	if root == nil {
		return []failure{{name: pkg, output: fmt.Sprint(err)}}
	}
	failed := root.failures(pkg)
	if err != nil && (!isTestFailure(err) || len(failed) == 0) {
		failed = append(failed, failure{name: pkg, output: root.output.String() + err.Error()})
	}
	return failed
}

// replay is one guest test, as a subtest of t.
func (r *result) replay(t *testing.T) {
	t.Helper()
	t.Run(r.name, func(t *testing.T) {
		if text := strings.TrimRight(r.output.String(), "\n"); text != "" {
			t.Logf("in the machine, %.2fs:\n%s", r.elapsed.Seconds(), text)
		}
		for _, child := range r.children {
			child.replay(t)
		}
		switch r.outcome {
		case "pass":
		case "fail":
			t.Fail()
		case "skip":
			t.Error("the test was skipped in the machine: the lab must have what its tests need")
		default:
			t.Error("the test did not end: the machine or the test program was lost")
		}
	})
}
