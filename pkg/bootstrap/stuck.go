package bootstrap

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/pci"
)

// StuckError is the error of a write of [Attributes] that the kernel did not answer in time. The write can't be canceled. It
// ends when the kernel answers, and may take effect then.
type StuckError struct {
	// Path is the file below the node's root, and Limit is how long the write was waited for.
	Path  string
	Limit time.Duration
}

func (e *StuckError) Error() string {
	text := fmt.Sprintf("the kernel has not answered for %s, and may still carry out the write", e.Limit)
	if _, err := pci.ParseAddress(path.Base(path.Dir(e.Path))); err == nil {
		return text + ": an operation on the function hangs and holds its device lock. Drain and reboot the node if it does not end"
	}
	return text + "; `dmesg` names tasks that are blocked"
}

func isStuck(err error) bool {
	_, stuck := errors.AsType[*StuckError](err)
	return stuck
}

// underWay reports whether the write of a setting may still take effect. No write survives a boot.
func (e *Engine) underWay(w *Written) bool { return w.Began != "" && w.Began == e.bootID() }

// answered marks the writes of the run as answered in the journal that records them as made.
func (w *work) answered(done *Journal) {
	for i := range done.Settings {
		if slices.ContainsFunc(w.settings, func(s SettingPlan) bool { return s.Path == done.Settings[i].Path }) {
			done.Settings[i].Began = ""
		}
	}
}

// undone returns the journal of a run whose changes are undone, except for the settings that are left.
func (w *work) undone(left []SettingPlan) *Journal {
	j := w.before.clone()
	for _, s := range left {
		same := func(o Written) bool { return o.Path == s.Path }
		if i := slices.IndexFunc(w.after.Settings, same); i >= 0 {
			j.Settings = append(slices.DeleteFunc(j.Settings, same), w.after.Settings[i])
		}
	}
	return j
}

// except names the settings that are left, in a sentence that ends with "undone".
func except(left []SettingPlan) string {
	if len(left) == 0 {
		return ""
	}
	var names []string
	for _, s := range left {
		names = append(names, "/"+s.Path)
	}
	return ", except for " + strings.Join(names, " and ") + ", which may still change: the next apply or revert continues"
}
