package fleet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// MaxBytes is the largest size of a file that is read.
const MaxBytes = 256 << 20

// maxFiles is the largest number of files of reports in one directory.
const maxFiles = 1 << 16

// maxName is the length of the longest node name.
const maxName = 253

// ReadReports reads the reports in files, in the .json and .ndjson files of directories, and on standard input for "-". A node may
// have several. It keeps only the findings that need attention. Reports without a node's name get the name nodeName, if it is not
// empty. If the input is not a report, the error is a [command.UsageError].
func ReadReports(stdin io.Reader, names []string, nodeName string) ([]*finding.Report, error) {
	if strings.ContainsAny(nodeName, "/\x00") || len(nodeName) > maxName {
		return nil, command.Usagef("--node-name %.300q is not a valid node name", nodeName)
	}
	var all []*finding.Report
	for _, name := range names {
		files, err := reportFiles(name)
		if err != nil {
			return nil, command.Usagef("node report: %w", err)
		}
		for _, file := range files {
			data, err := command.ReadArgument(stdin, file, MaxBytes)
			if err != nil {
				return nil, err
			}
			reports, err := decodeReports(data, nodeName)
			if err != nil {
				return nil, command.Usagef("node report %s: %w", file, err)
			}
			all = append(all, reports...)
		}
	}
	return all, nil
}

func reportFiles(name string) ([]string, error) {
	// A name that does not exist is read as a directory, because the error then has the name.
	if info, err := os.Stat(name); name == "-" || err == nil && !info.IsDir() {
		return []string{name}, nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); e.Type().IsRegular() && (ext == ".json" || ext == ".ndjson") {
			files = append(files, filepath.Join(name, e.Name()))
		}
	}
	if len(files) == 0 || len(files) > maxFiles {
		return nil, fmt.Errorf("%s has %d files of reports (.json, .ndjson), want 1 to %d", name, len(files), maxFiles)
	}
	return files, nil
}

// decodeReports reads one report after the other. If the input is a log, which may have cut-off lines, lines of other
// programs and prefixes of kubectl, it reads the lines that are reports.
func decodeReports(data []byte, nodeName string) ([]*finding.Report, error) {
	whole, err := decodeStream(data, nodeName)
	// A report without a node's name is still a report. If it were read as a log, the error would not say what to do.
	if err == nil || errors.Is(err, errNoName) {
		return whole, err
	}
	reports, failed := decodeLines(data, nodeName)
	if failed != nil {
		err = failed
	}
	if len(reports) == 0 {
		return nil, fmt.Errorf("it is not a report of `node -o json`, nor a log with some: %w", err)
	}
	return reports, nil
}

func decodeStream(data []byte, nodeName string) ([]*finding.Report, error) {
	var reports []*finding.Report
	for dec := json.NewDecoder(bytes.NewReader(data)); ; {
		r := &finding.Report{}
		err := dec.Decode(r)
		if errors.Is(err, io.EOF) && len(reports) > 0 {
			return reports, nil
		}
		if err != nil {
			return nil, err
		}
		r.Subject.Name = cmp.Or(r.Subject.Name, nodeName)
		if err := wantNode(r); err != nil {
			return nil, err
		}
		reports = append(reports, r)
	}
}

// wantNode returns an error for a report that is not about a node. From other reports, it removes what a roll-up does not need:
// only the findings that need attention, the counts, and the IDs of the other checks are kept.
func wantNode(r *finding.Report) error {
	if err := KnownReport(r); err != nil {
		return err
	}
	if kind := r.Subject.Kind; kind != "node" && kind != "archive" {
		return fmt.Errorf("it is about a %.32q, not about a node", kind)
	}
	if r.Subject.Name == "" {
		return errNoName
	}
	if _, err := time.Parse(time.RFC3339, r.Subject.Time); err != nil {
		return fmt.Errorf("its time is invalid: %w", err)
	}
	// The summary counts passes too, so it is computed before passes are removed below.
	if r.Summary.Verdict == "" {
		r.Finish()
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f finding.Finding) bool {
		passed := f.State == finding.Pass || f.State == finding.NotApplicable
		if passed {
			r.Passed = append(r.Passed, f.ID)
		}
		return passed
	})
	slices.Sort(r.Passed)
	r.Passed = slices.Compact(r.Passed)
	// DeleteFunc does not shrink the array, which would keep the passes of a large cluster in memory.
	r.Findings = slices.Clip(slices.Clone(r.Findings))
	return nil
}

// errNoName is the error for a report of a machine that did not know its node name.
var errNoName = errors.New("it has no node name; set --node-name to the node's name in the cluster")

// KnownReport returns an error for a report without findings, or with a state or severity that this version does not know, because
// it could not order them.
func KnownReport(r *finding.Report) error {
	if len(r.Findings) == 0 {
		return errors.New("it has no findings")
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		if !slices.Contains(finding.States(), f.State) || !slices.Contains(finding.Severities(), f.Severity) {
			return fmt.Errorf("%.32q has the state %.32q and the severity %.32q, one of which this version does not know", f.ID, f.State, f.Severity)
		}
	}
	return nil
}

const (
	// MaxAge is the largest age of a node's report.
	MaxAge = 24 * time.Hour
	// ClockSkew is the possible difference between the clocks of nodes and API server. Times that are closer to each other
	// are not ordered.
	ClockSkew = 5 * time.Minute
)

// NodeReport is the latest report of one node, and those before it.
type NodeReport struct {
	Report *finding.Report
	Node   string
	At     time.Time
	Older  []*finding.Report
}

// LatestReports returns the latest report of each node, by its name in the cluster. isNode reports whether a name is a
// node's.
func LatestReports(reports []*finding.Report, isNode func(string) bool) []NodeReport {
	byNode := map[string]NodeReport{}
	for _, r := range reports {
		at, _ := time.Parse(time.RFC3339, r.Subject.Time) // checked when it was read
		node := FindNode(r, isNode)
		have, ok := byNode[node]
		switch {
		case !ok:
			have = NodeReport{Report: r, Node: node, At: at}
		case at.After(have.At):
			have = NodeReport{Report: r, Node: node, At: at, Older: append(have.Older, have.Report)}
		default:
			have.Older = append(have.Older, r)
		}
		byNode[node] = have
	}
	return slices.SortedFunc(maps.Values(byNode), func(a, b NodeReport) int { return strings.Compare(a.Node, b.Node) })
}

// FindNode returns the node's name in the cluster for a report. The node's hostname may differ from that name. In this case, the
// name is taken from the node's ledger.
func FindNode(r *finding.Report, isNode func(string) bool) string {
	if c, ok := Checkpoint(r); ok && !isNode(r.Subject.Name) {
		if name := strings.TrimPrefix(c.Origin, ledger.OriginPrefix); isNode(name) {
			return name
		}
	}
	return r.Subject.Name
}

// Checkpoint returns the checkpoint of a report's ledger.
func Checkpoint(r *finding.Report) (ledger.Anchor, bool) {
	if r.NodeRecords == nil || r.NodeRecords.Ledger == nil {
		return ledger.Anchor{}, false
	}
	found := ledger.FindCheckpoints([]byte(r.NodeRecords.Ledger.Checkpoint))
	if len(found) != 1 {
		return ledger.Anchor{}, false
	}
	return found[0], true
}

// Untimely says why the report does not describe the present. It is empty if it does.
func (r *NodeReport) Untimely(now time.Time) string {
	switch age := now.Sub(r.At); {
	case age > MaxAge:
		return fmt.Sprintf("was audited %s ago", age.Round(time.Hour))
	case age < -ClockSkew:
		return "has a report from the future: a clock is wrong"
	}
	return ""
}
