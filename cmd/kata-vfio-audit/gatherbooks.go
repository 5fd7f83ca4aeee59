package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/archive/bundle"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
)

// maxTail is how many of a ledger's last events a bundle has by themselves.
const maxTail = 2000

// statusView is what the journal says.
type statusView struct {
	Records []*journal.Record `json:"records"`
	// Marks are the files of functions that are drained or not proven clean, by name.
	Marks   map[string]string `json:"marks"`
	Damaged []string          `json:"damaged"`
}

// records decodes the journal as the recorder has it.
func (r *recorded) records() (readable []*journal.Record, unreadable map[string]error) {
	unreadable = map[string]error{}
	files := r.recorder.Contents(func(place string) bool {
		return path.Dir(place) == journal.DefaultDir && strings.HasSuffix(place, ".json")
	})
	for _, place := range slices.Sorted(maps.Keys(files)) {
		rec, err := journal.Decode(files[place])
		if err != nil {
			unreadable[place] = err
			continue
		}
		readable = append(readable, rec)
	}
	return readable, unreadable
}

// addRecords adds what the journal says, and hides whom it names.
func (r *recorded) addRecords(b *bundle.Bundle, mask *bundle.Mask) error {
	records, unreadable := r.records()
	v := statusView{Records: records, Marks: map[string]string{}, Damaged: []string{}}
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
	marks := r.recorder.Contents(func(place string) bool {
		return strings.HasPrefix(place, journal.DefaultDir+"/") && path.Dir(place) != journal.DefaultDir
	})
	for place, data := range marks {
		v.Marks[strings.TrimPrefix(place, journal.DefaultDir+"/")] = strings.TrimSpace(string(data))
	}
	return b.AddJSON("status.json", v)
}

// unreadableRecords are the files of the journal that a masked bundle goes without, and
// what crashes left of others.
func (r *recorded) unreadableRecords(b *bundle.Bundle) map[string]bool {
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
		b.Note(place + " is left out: it can't be read, so that names in it can't be found")
	}
	return dropped
}

// addLedger adds the ledger's last events and what verifying it says, and hides whom
// its events name.
func (r *recorded) addLedger(ctx context.Context, b *bundle.Bundle, mask *bundle.Mask) error {
	l, err := r.node.openLedger()
	if err != nil {
		b.Note(err.Error())
		return nil
	}
	defer func() { _ = l.Close() }()
	result := map[string]any{}
	report, err := l.verify(ctx, ledger.Options{})
	if errors.Is(err, ledger.ErrNone) {
		b.Note(err.Error())
		return nil
	}
	if err != nil {
		result["error"] = err.Error()
	} else {
		result["sound"], result["report"] = report.OK(), report
	}
	if err := b.AddJSON("ledger-verification.json", result); err != nil {
		return err
	}
	var tail [][]byte
	for e, err := range ledger.Events(l.FS) {
		if err != nil {
			continue // the verification says where
		}
		mask.Hide(bundle.NamesOf(e.Event)...)
		if tail = append(tail, bytes.Clone(e.Raw)); len(tail) > 2*maxTail {
			tail = slices.Clone(tail[maxTail:])
		}
	}
	tail = append(tail[max(len(tail)-maxTail, 0):], nil) // the last line ends, too
	b.Add("ledger-tail.ndjson", bundle.Readable(bytes.TrimPrefix(bytes.Join(tail, []byte("\n")), []byte("\n"))))
	return nil
}
