package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/kata-vfio/kata-vfio/pkg/audit"
	"github.com/kata-vfio/kata-vfio/pkg/audit/archive"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/facts/runtimes"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// support is a support bundle of a node.
type support struct {
	mask      bool
	namespace string
	cluster   apiServer
}

// flags adds the flags that only a support bundle has, and returns their names.
func (s *support) flags(cmd *cobra.Command) (names []string) {
	f := cmd.Flags()
	f.BoolVar(&s.mask, "mask", false, "with --support: replace the names of tenants' namespaces, pods and claims")
	s.cluster.kube.AddFile(cmd, "with --support: also ask this kubeconfig's cluster (default: no cluster)")
	f.StringVarP(&s.namespace, "namespace", "n", pluginNamespace, "with --support: namespace of the plugin")
	return []string{"mask", "kubeconfig", "namespace"}
}

// pluginNamespace is where the chart is installed by default.
const pluginNamespace = "kata-vfio-system"

// write reads the node and writes the bundle, with a limited number of bytes of the ledger.
func (s *support) write(ctx context.Context, t *tree, w, warnings io.Writer, ledgerLimit int64) error {
	r, err := t.record(ctx, warnings, ledgerLimit)
	if err != nil {
		return err
	}
	defer func() { _ = r.node.Close() }()
	var b output.Bundle
	// The patterns are paths of the system: a tenant whose name is a word of one must not change it.
	b.Keep(archive.Patterns()...)
	var mask *output.Mask
	if s.mask {
		mask = output.NewMask()
		b.Note("names of tenants' namespaces, pods and claims are replaced: the ledger's lines no longer verify, ledger-verification.json is " +
			"from before, and the journal's records are rewritten")
	}
	if err := s.fill(ctx, r, &b, mask); err != nil {
		return err
	}
	// The node's archive is compressed, so that its names are replaced here. The mask must know all names by now.
	node, err := r.archive(&b, mask)
	if err != nil {
		return err
	}
	b.AddDone("node.tgz", node)
	m := output.BundleManifest{Tool: command.Build(), Time: r.manifest.Time, Hostname: r.manifest.Hostname, BootID: r.manifest.BootID}
	return b.Write(w, m, mask)
}

// fill adds everything except the node's archive, and adds all names to the mask.
func (s *support) fill(ctx context.Context, r *recorded, b *output.Bundle, mask *output.Mask) error {
	for _, part := range []func() error{
		func() error { return r.devices(b) },
		func() error { return r.addFindings(b, mask) },
		func() error { return b.AddJSON("versions.json", archive.ReadVersions(r.node.fs, command.Build())) },
		func() error { return r.addRecords(b, mask) },
		func() error { return r.addLedger(ctx, b, mask) },
		func() error { return r.addBootstrap(b) },
		func() error { return archive.AddLogs(ctx, b, r.node.fs, s.namespace, mask) },
		func() error { return s.addCluster(ctx, b, mask) },
	} {
		if err := part(); err != nil {
			return err
		}
	}
	r.hideContainers(mask, s.namespace)
	return nil
}

// hideContainers hides the pods whose containers run on the node, according to its runtime.
func (r *recorded) hideContainers(mask *output.Mask, own string) {
	containers, _ := runtimes.Containers(r.facts)
	for _, c := range containers {
		if c.Info.Namespace != own {
			mask.Hide(c.Info.Namespace, c.Info.Pod)
		}
	}
}

func (r *recorded) devices(b *output.Bundle) error {
	var out bytes.Buffer
	if err := audit.NewNodeInventory(r.facts, r.checks, today()).WriteJSON(&out); err != nil {
		return fmt.Errorf("record the devices: %w", err)
	}
	b.Add("devices.json", out.Bytes())
	return nil
}

// addFindings adds the report. Under a mask it leaves out the content of unreadable records, as the node's archive
// does.
func (r *recorded) addFindings(b *output.Bundle, mask *output.Mask) error {
	_, unreadable := r.records()
	for i := range r.findings.Findings {
		for j := range r.findings.Findings[i].Evidence {
			e := &r.findings.Findings[i].Evidence[j]
			switch {
			case mask == nil:
			case unreadable[strings.TrimPrefix(e.Path, "/")] != nil:
				e.Value = "(left out)"
			default:
				e.Value = whole(e.Value)
			}
		}
	}
	var out strings.Builder
	doc := &report.Document{Report: r.findings, Rules: finding.Rules(r.checks)}
	if err := report.Write(&out, doc, "json", report.Options{Show: rule.Info}); err != nil {
		return fmt.Errorf("record the findings: %w", err)
	}
	b.Add("findings.json", []byte(out.String()))
	return nil
}

// whole returns a long value, which was cut, without the part of a word at its end: a mask does not know half a
// name.
func whole(value string) string {
	cut, wasCut := strings.CutSuffix(value, "…")
	if !wasCut {
		return value
	}
	return strings.TrimRightFunc(cut, func(r rune) bool { return r == '-' || r == '.' || unicode.IsLetter(r) || unicode.IsDigit(r) }) + "…"
}

// archive returns the node's archive. Under a mask it leaves out unreadable records, because names in them can't
// be found.
func (r *recorded) archive(b *output.Bundle, mask *output.Mask) ([]byte, error) {
	if mask != nil {
		unreadable := r.unreadableRecords(b)
		archive.ReserveNode(mask, r.recorder)
		r.recorder.Rewrite(func(place string, data []byte) []byte {
			switch name := path.Base(place); {
			case ledger.IsSegment(name), ledger.IsKept(name):
				data = mask.Fields(archive.Readable(data))
			case isRecord(place):
				return maskedRecord(mask, name, data)
			case isSanitizeMark(place):
				data = mask.Fields(hideMark(mask, name, data))
			case path.Ext(place) == ".json":
				data = mask.Fields(data)
			}
			return mask.Apply(data)
		}, func(place string) bool { return unreadable[place] })
	}
	var out bytes.Buffer
	if err := r.recorder.Write(&out, r.manifest); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// maskedRecord rewrites a record of the journal with other names and their checksum. Without it, an archive would
// not show the owners of devices.
func maskedRecord(mask *output.Mask, name string, data []byte) []byte {
	rec, err := journal.DecodeFile(name, data)
	if err != nil {
		return []byte(leftOut)
	}
	// The record's checksum covers its bytes: a replaced name in the file would make a damaged record of it.
	body, err := json.Marshal(rec)
	if err != nil {
		return []byte(leftOut)
	}
	var masked journal.Record
	if err := json.Unmarshal(mask.Apply(mask.Fields(body)), &masked); err != nil {
		return []byte(leftOut)
	}
	if data, err = journal.Encode(&masked); err != nil {
		return []byte(leftOut)
	}
	return data
}

// maxTail is the number of a ledger's last events that a bundle has separately.
const maxTail = 2000

// statusView is the content of the journal.
type statusView struct {
	Records []*journal.Record `json:"records"`
	// Marks are the files of functions that are drained, not proven clean or not sanitized, by name.
	Marks   map[string]string `json:"marks"`
	Damaged []string          `json:"damaged"`
}

// records decodes the recorded journal.
func (r *recorded) records() (readable []*journal.Record, unreadable map[string]error) {
	unreadable = map[string]error{}
	files := r.recorder.Contents(isRecord)
	for _, place := range slices.Sorted(maps.Keys(files)) {
		rec, err := journal.DecodeFile(path.Base(place), files[place])
		if err != nil {
			unreadable[place] = err
			continue
		}
		readable = append(readable, rec)
	}
	return readable, unreadable
}

// isRecord reports whether a file is a record of the journal, or the remainder of an interrupted write of one.
func isRecord(place string) bool {
	return path.Dir(place) == journal.DefaultDir && path.Ext(place) == ".json"
}

// addRecords adds the journal's records, and hides the tenants that they name.
func (r *recorded) addRecords(b *output.Bundle, mask *output.Mask) error {
	records, unreadable := r.records()
	v := statusView{Records: records, Marks: r.marks(mask), Damaged: []string{}}
	for _, rec := range records {
		mask.Hide(rec.Plan.Claim.Namespace, rec.Plan.Claim.Name)
		for _, p := range rec.Plan.Claim.Pods {
			mask.Hide(p.Name)
		}
	}
	for place, err := range unreadable {
		v.Damaged = append(v.Damaged, fmt.Sprintf("%s: %v", place, err))
	}
	slices.Sort(v.Damaged)
	return b.AddJSON("status.json", v)
}

// unreadableRecords returns the files of the journal that a masked bundle leaves out: records that can't be read, and the
// remains of writes that a crash interrupted.
func (r *recorded) unreadableRecords(b *output.Bundle) map[string]bool {
	dropped := map[string]bool{}
	_, unreadable := r.records()
	for place := range unreadable {
		dropped[place] = true
	}
	for place := range r.recorder.Contents(func(place string) bool {
		return path.Dir(place) == journal.DefaultDir && !strings.HasSuffix(place, ".json")
	}) {
		dropped[place] = true
	}
	for _, place := range slices.Sorted(maps.Keys(dropped)) {
		b.Note(place + " is left out: it can't be read, so its names can't be masked")
	}
	return dropped
}

// addLedger adds the ledger's last events and the result of verifying it, and hides the tenants that its events
// name.
func (r *recorded) addLedger(ctx context.Context, b *output.Bundle, mask *output.Mask) error {
	l, err := r.node.openLedger()
	if err != nil {
		b.Note(err.Error())
		return nil
	}
	defer func() { _ = l.closer.Close() }()
	result := map[string]any{}
	verified, err := l.verify(ctx, ledger.Options{})
	if errors.Is(err, ledger.ErrNone) {
		b.Note(err.Error())
		return nil
	}
	if err != nil {
		result["error"] = err.Error()
	} else {
		result["sound"], result["report"] = verified.OK(), verified
	}
	if err := b.AddJSON("ledger-verification.json", result); err != nil {
		return err
	}
	var tail [][]byte
	for e, err := range ledger.Events(l.files) {
		if err != nil {
			continue // the verification says where
		}
		mask.Hide(archive.ListNames(e.Event)...)
		// The slice is cut at twice the limit, so that the tail is not copied at each event.
		if tail = append(tail, bytes.Clone(e.Raw)); len(tail) > 2*maxTail {
			tail = slices.Clone(tail[maxTail:])
		}
	}
	tail = append(tail[max(len(tail)-maxTail, 0):], nil) // the last line ends, too
	b.Add("ledger-tail.ndjson", archive.Readable(bytes.TrimPrefix(bytes.Join(tail, []byte("\n")), []byte("\n"))))
	return nil
}

// bootstrapDir is the directory of kata-vfio-bootstrap's records of its changes to the node.
const bootstrapDir = "var/lib/kata-vfio/bootstrap"

// maxBootstrap is the largest of its files that is included, in bytes.
const maxBootstrap = 4 << 20

// addBootstrap adds bootstrap's records of its changes to the node and of its last inspection. It leaves out the
// backups, which are configurations that may have secrets.
func (r *recorded) addBootstrap(b *output.Bundle) error {
	for _, name := range []string{"journal.json", "verified.json"} {
		data, err := r.node.fs.ReadAtMost(path.Join(bootstrapDir, name), maxBootstrap)
		switch {
		case err == nil:
			b.Add(path.Join("bootstrap", name), data)
		case !errors.Is(err, fs.ErrNotExist):
			b.Note("bootstrap/" + name + " is left out: " + err.Error())
		}
	}
	return nil
}
