package audit

import (
	"io/fs"
	"path"
	"slices"
	"sync"

	"github.com/kata-vfio/kata-vfio/pkg/audit/check"
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// changes returns the changes of each part. A part repairs the checks that do not pass without it.
func (j *judge) changes(repaired []CandidateRule) []CandidateChange {
	checks := slices.DeleteFunc(slices.Clone(j.node.Checks), func(c check.Check) bool {
		return c.Review != nil || !slices.ContainsFunc(repaired, func(r CandidateRule) bool { return r.ID == c.ID })
	})
	read := j.partsRead(checks)
	var all []CandidateChange
	for _, part := range j.parts() {
		change := j.change(part)
		if len(change.Files) == 0 {
			continue // the operator must add the arguments, because bootstrap has no file for them
		}
		if slices.Contains(read, part) {
			s := j.scenario(part)
			change.Repairs = failing(j.run(j.node.FS.WithOverlay(s.files), s.snapshot, checks))
		}
		change.Repairs = list(change.Repairs)
		all = append(all, change)
	}
	return all
}

// scenario returns a scenario without the changes of the given parts.
func (j *judge) scenario(without ...string) scenario {
	all := scenarios(j.outlook, j.node.Snapshot, without)
	return all[len(all)-1]
}

// partsRead returns the parts whose files the checks read. No other part can repair a check.
func (j *judge) partsRead(checks []check.Check) []string {
	if len(checks) == 0 {
		return nil
	}
	var mu sync.Mutex
	read := map[string]bool{}
	s := j.scenario()
	j.run(j.node.FS.WithOverlay(s.files).WithTap(func(a sysfs.Access) {
		// Checks run in parallel, and this function is called for each read.
		mu.Lock()
		defer mu.Unlock()
		read[path.Clean(a.Path)] = true
	}), s.snapshot, checks)
	parts := []string{}
	if j.outlook.IOMMU {
		parts = append(parts, host.KernelPart) // without this part, the snapshot differs
	}
	for _, f := range j.outlook.Files {
		if read[f.Path] {
			parts = append(parts, f.Parts...)
		}
	}
	return parts
}

// parts are the parts of bootstrap that change something, in the order of their files.
func (j *judge) parts() []string {
	var all []string
	for _, f := range j.outlook.Files {
		for _, part := range f.Parts {
			if !slices.Contains(all, part) {
				all = append(all, part)
			}
		}
	}
	return all
}

func (j *judge) change(part string) CandidateChange {
	c := CandidateChange{Part: part}
	for _, f := range j.outlook.Files {
		if f.Path != kernelargs.Running && f.Mode.Type() != fs.ModeSocket && slices.Contains(f.Parts, part) {
			c.Files = append(c.Files, "/"+f.Path)
		}
	}
	if part == host.KernelPart {
		c.Arguments = j.outlook.Arguments
	}
	return c
}

// failing returns the checks that do not pass, sorted.
func failing(r *finding.Report) []string {
	var all []string
	for id, f := range worst(r) {
		if f.State == finding.Fail || undetermined(f.State) {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return all
}
