package main

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
)

// podTest has the flags of test.
type podTest struct {
	node, class, runtimeClass, image string
	// limit is for one node, without the clean-up.
	limit time.Duration
	dry   bool
	// pause is how long to wait before looking again.
	pause time.Duration
}

func testCommand(s *session) *cobra.Command {
	formats := command.Formats{"text", "json", "yaml"}
	var format string
	t := podTest{pause: time.Second}
	cmd := &cobra.Command{
		Use:   "test",
		Short: "Test on each node that a pod gets its device in a VM, and that others are refused",
		Long: "test makes, on one node after the other that has a free device of the DeviceClass, a ResourceClaim and a pod with it, in the namespace of\n" +
			"-n. It checks that the pod's VM boots and sees the device by its PCI IDs, once; that a second pod with the same claim is refused; and\n" +
			"that a pod with the node's /dev/vfio is refused. It deletes what it made, also after Ctrl-C, and waits until the device is given back.\n" +
			"The pods tolerate all taints of nodes. What is left after a crash has the label " + testLabel + ".\n" +
			"\n" +
			exitCodeHelp("test"),
		Example: "  kubectl kata-vfio test -n probe\n  kubectl kata-vfio test -n probe --node worker-1 --class vf.kata-vfio.dev\n" +
			"  kubectl kata-vfio test -n probe --dry-run   # shows which nodes",
		Args: command.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(*cobra.Command, []string) error { return errors.Join(formats.Check(format), t.check()) },
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := s.test(cmd, &t)
			if report == nil {
				return err
			}
			out := cmd.OutOrStdout()
			done, printed := output.Document(out, format, "test", report)
			if !done {
				printed = writeLines(out, testLines(report, output.Width(out), output.Colorful(out)))
			}
			if err == nil {
				err = report.verdict()
			}
			return errors.Join(printed, err)
		},
	}
	formats.Flag(cmd, &format)
	f := cmd.Flags()
	f.StringVar(&t.node, "node", "", "test this `node` only")
	f.StringVar(&t.class, "class", "gpu."+v1alpha1.DriverName, "DeviceClass of the devices")
	f.StringVar(&t.runtimeClass, "runtime-class", "kata-gpu", "RuntimeClass of the pods")
	f.StringVar(&t.image, "image", defaultTestImage(), "image of kata-vfio-guestnet, which looks at the VM's devices")
	f.DurationVar(&t.limit, "timeout", 5*time.Minute, "how long the test of one node may take")
	f.BoolVar(&t.dry, "dry-run", false, "show the nodes with a free device, and make nothing")
	_ = cmd.RegisterFlagCompletionFunc("node", s.completeNodes)
	return cmd
}

// testImage is the image that looks at the VM's devices, without its tag.
const testImage = "ghcr.io/kata-vfio/kata-vfio-guestnet"

// defaultTestImage returns the image of this program's release, or "" if this program is not a release.
func defaultTestImage() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || !isRelease(info.Main.Version) {
		return ""
	}
	return testImage + ":" + strings.TrimPrefix(info.Main.Version, "v")
}

// isRelease reports whether a module's version is that of a release: v1.2.3, and not v0.0.0-20261128-abcdef or v1.2.3+dirty.
func isRelease(version string) bool {
	return strings.HasPrefix(version, "v") && !strings.ContainsAny(version, "-+")
}

func (t *podTest) check() error {
	switch {
	case t.limit <= 0:
		return command.Usagef("--timeout %s: want more than 0, such as 5m", t.limit)
	case t.image == "" && !t.dry:
		return command.Usagef("--image is missing: this program is of no release, so name the image of kata-vfio-guestnet, such as %s:0.1.0", testImage)
	}
	return nil
}

// testReport is the result for all nodes. Its JSON form is stable: names are added, never changed.
type testReport struct {
	Tests []nodeTest `json:"tests"`
}

// Results of a check and of a node's test.
const (
	passed  = "passed"
	failed  = "failed"
	unknown = "unknown"
	planned = "planned"
)

// nodeTest is the test of one node.
type nodeTest struct {
	Node  string `json:"node"`
	Class string `json:"class"`
	// Free is how many devices of the class claims can get at the beginning.
	Free int `json:"free"`
	// Device is the one that the claim got.
	Device  string      `json:"device,omitempty"`
	Result  string      `json:"result"`
	Checks  []testCheck `json:"checks"`
	Seconds float64     `json:"seconds"`
}

// testCheck is one thing that is tested.
type testCheck struct {
	// Name is one of the names of checks, such as "boots".
	Name   string `json:"name"`
	Result string `json:"result"`
	Text   string `json:"text"`
}

// add adds a check. A check that fails fails the test.
func (n *nodeTest) add(name, result, text string) {
	n.Checks = append(n.Checks, testCheck{name, result, text})
	if result == failed {
		n.Result = failed
	}
}

// verdict returns which nodes fail; nil if none does.
func (r *testReport) verdict() error {
	var nodes []string
	for i := range r.Tests {
		if r.Tests[i].Result == failed {
			nodes = append(nodes, r.Tests[i].Node)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	return &verdictError{fmt.Sprintf("the test fails on %d of %s: %s", len(nodes), output.Count(len(r.Tests), "node"), strings.Join(nodes, ", "))}
}

// testLines is a report for people.
func testLines(r *testReport, width int, color bool) (lines []string) {
	marks := map[string]string{
		passed: output.Paint(color, output.Green, "✓"), failed: output.Paint(color, output.Red, "✗"),
		unknown: output.Paint(color, output.Yellow, "?"), planned: "-",
	}
	for i := range r.Tests {
		n := &r.Tests[i]
		text := fmt.Sprintf("%s: %s, %s (%.0f s)", n.Node, orDash(n.Device), n.Result, n.Seconds)
		if n.Result == planned {
			text = fmt.Sprintf("%s: would be tested, %s of %s free", n.Node, output.Count(n.Free, "device"), n.Class)
		}
		lines = append(lines, indented(marks[n.Result]+" ", "  ", text, width)...)
		for _, c := range n.Checks {
			lines = append(lines, indented("  "+marks[c.Result]+" ", "    ", c.Name+": "+c.Text, width)...)
		}
	}
	return lines
}
