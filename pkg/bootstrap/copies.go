package bootstrap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// copies returns the changes that remove bootstrap's arguments from entries of the boot loader that were made after apply:
// a kernel's package copies the arguments of the running kernel, or those of an earlier entry.
func (e *Engine) copies(j *Journal, result *Result) ([]change, error) {
	l := &host.Detect(e.Tree, e.Live).Loader
	if l.Managed != nil {
		return nil, nil
	}
	var changes []change
	for _, name := range append(slices.Clone(l.EntryFiles), l.Cmdline) {
		if name == "" || j.entry(name) != nil {
			continue
		}
		found, err := e.Files.Look(name)
		if err != nil || found.Kind != state.RegularFile {
			continue // an entry that can't be read is not bootstrap's to change
		}
		content, err := e.withoutArguments(j, string(found.Content))
		if err != nil {
			return nil, err
		}
		if content == string(found.Content) {
			continue
		}
		c := change{file: state.File{Part: host.KernelPart, Path: name, Why: copied, Then: []state.FollowUp{state.Reboot}}, back: true, was: found, to: found.Image, content: []byte(content)}
		c.to.Sum = state.Sum(c.content)
		if problem := e.obstacle(&c); problem != nil {
			result.Kept = append(result.Kept, Kept{Path: name, Why: fmt.Sprintf("it has a copy of bootstrap's arguments, but %s; remove them yourself", problem.Text), Diff: c.diff()})
			continue
		}
		changes = append(changes, c)
		result.Changed = append(result.Changed, FilePlan{Path: name, Part: host.KernelPart, Why: copied, Status: Done, Action: "take back", Diff: c.diff()})
	}
	return changes, nil
}

const copied = "it was made after apply, with bootstrap's arguments"

// withoutArguments returns a text without the arguments that bootstrap added to boot loader entries.
func (e *Engine) withoutArguments(j *Journal, text string) (string, error) {
	for i := range j.Entries {
		entry := &j.Entries[i]
		if !strings.Contains(entry.Path, kernelargs.Entries+"/") && entry.Path != kernelargs.KernelInstall || entry.After.Kind != state.RegularFile {
			continue
		}
		before, err := e.kept(entry.Before)
		if err != nil {
			return "", err
		}
		after, err := e.kept(entry.After)
		if err != nil {
			return "", err
		}
		text = host.Withdraw(string(before), string(after), text)
	}
	return text, nil
}
