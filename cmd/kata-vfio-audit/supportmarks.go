package main

import (
	"encoding/json"
	"path"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/journal"
)

// leftOut replaces a file of the journal whose names can't be found. It can't be decoded, so the mark is judged as a damaged one.
const leftOut = "(left out: its names could not be replaced)\n"

// isSanitizeMark reports whether a file is in the directory of the marks that name a tenant's claim and a stage's pod, or is the
// remainder of an interrupted write there.
func isSanitizeMark(place string) bool {
	return path.Dir(place) == path.Join(journal.DefaultDir, journal.UnsanitizedDir)
}

// marks returns the contents of the journal's marks by their names, and hides the tenants that they name.
func (r *recorded) marks(mask *output.Mask) map[string]string {
	all := map[string]string{}
	for place, data := range r.recorder.Contents(func(place string) bool {
		return strings.HasPrefix(place, journal.DefaultDir+"/") && path.Dir(place) != journal.DefaultDir
	}) {
		if mask != nil && isSanitizeMark(place) {
			data = hideMark(mask, path.Base(place), data)
		}
		all[strings.TrimPrefix(place, journal.DefaultDir+"/")] = strings.TrimSpace(string(data))
	}
	return all
}

// hideMark hides the names in a mark, and returns the mark with its known fields only: others may have names, too.
func hideMark(mask *output.Mask, name string, data []byte) []byte {
	m, err := journal.DecodeSanitizeMark(name, data)
	if err != nil {
		return []byte(leftOut)
	}
	mask.Hide(m.Claim.Namespace, m.Claim.Name)
	hideStage(mask, m.Stage)
	if m.Failed != nil {
		hideStage(mask, &m.Failed.Stage)
	}
	known, err := json.Marshal(m)
	if err != nil {
		return []byte(leftOut)
	}
	return append(known, '\n')
}

func hideStage(mask *output.Mask, s *journal.Stage) {
	if s != nil {
		mask.Hide(s.Claim.Namespace, s.Claim.Name, s.Pod)
	}
}
