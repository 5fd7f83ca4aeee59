package labtest

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
)

// Suite runs the guest tests of one test binary and repeats at its end which of them failed, where the end of a long
// log shows it. The zero value is ready, and safe for concurrent use.
type Suite struct {
	mu     sync.Mutex
	failed []failure
}

// Main runs the binary's tests, prints the failed guest tests and returns the exit code.
func (s *Suite) Main(m *testing.M) int {
	code := m.Run()
	s.mu.Lock()
	defer s.mu.Unlock()
	summarize(os.Stdout, s.failed)
	return code
}

func (s *Suite) note(failed []failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = append(s.failed, failed...)
}

// failure is a guest test that failed, or the package whose run did, and its output.
type failure struct{ name, output string }

// failures are the failed tests of a result. A test whose subtest failed is left out.
func (r *result) failures(path string) []failure {
	var all []failure
	for _, c := range r.children {
		name := path + "/" + c.name
		inside := c.failures(name)
		if len(inside) == 0 && c.outcome != "pass" {
			inside = []failure{{name: name, output: c.output.String()}}
		}
		all = append(all, inside...)
	}
	return all
}

// What a summary has at most. Logs are often shown by their last thirty lines.
const (
	linesOfTest    = 12
	linesOfSummary = 25
)

// summarize prints the name and the last lines of each failed test.
func summarize(out io.Writer, failed []failure) {
	shown := failed[:min(len(failed), linesOfSummary-1)]
	if len(shown) == 0 {
		return
	}
	each := min(linesOfTest, linesOfSummary/len(shown)) - 1 // less the name
	for _, f := range shown {
		fmt.Fprintf(out, "FAILED in the machine: %s\n", f.name)
		for _, line := range lastLines(f.output, each) {
			fmt.Fprintf(out, "  %s\n", line)
		}
	}
	if more := len(failed) - len(shown); more > 0 {
		fmt.Fprintf(out, "and %d more guest tests failed\n", more)
	}
}

// lastLines are the last n lines of a text, without the empty lines at its end.
func lastLines(text string, n int) []string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return lines[max(0, len(lines)-n):]
}
