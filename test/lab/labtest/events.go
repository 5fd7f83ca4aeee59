package labtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is a line of test2json (go doc test2json).
type event struct {
	Action  string
	Test    string
	Elapsed float64
	Output  string
}

// result is a guest test with its subtests, in the order in which they began. The root has no name.
type result struct {
	name     string
	outcome  string // pass, fail, skip, or empty: it did not end
	elapsed  time.Duration
	output   strings.Builder
	children []*result
}

// child finds or makes the subtest of that name.
func (r *result) child(name string) *result {
	for _, c := range r.children {
		if c.name == name {
			return c
		}
	}
	c := &result{name: name}
	r.children = append(r.children, c)
	return c
}

// find finds or makes the test of a full name like TestA/case.
func (r *result) find(test string) *result {
	if test == "" {
		return r
	}
	for part := range strings.SplitSeq(test, "/") {
		r = r.child(part)
	}
	return r
}

// passed are the top-level tests that passed. r may be nil.
func (r *result) passed() []*result {
	if r == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.children), func(c *result) bool { return c.outcome != "pass" })
}

// after is the result with the tests of earlier runs before its own, or nil if there is none.
func (r *result) after(earlier []*result) *result {
	if r != nil {
		r.children = slices.Concat(earlier, r.children)
	}
	return r
}

// collect reads events to their end and calls finished for each top-level test that ends.
func collect(in io.Reader, finished func(*result)) (*result, error) {
	root := &result{}
	for dec := json.NewDecoder(in); ; {
		var e event
		switch err := dec.Decode(&e); {
		case errors.Is(err, io.EOF):
			return root, nil
		case err != nil:
			return root, fmt.Errorf("read test events: %w", err)
		}
		r := root.find(e.Test)
		r.add(e)
		if e.Test != "" && r.outcome != "" && !strings.Contains(e.Test, "/") {
			finished(r)
		}
	}
}

func (r *result) add(e event) {
	switch e.Action {
	case "output":
		if !isFrame(e.Output) {
			r.output.WriteString(e.Output)
		}
	case "pass", "fail", "skip":
		r.outcome = e.Action
		r.elapsed = time.Duration(e.Elapsed * float64(time.Second))
	}
}

// isFrame tells the lines that the testing package prints around a test, which the host's subtest prints itself.
func isFrame(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ")
}
