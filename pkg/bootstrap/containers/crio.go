package containers

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// CRI-O's file, and bootstrap's drop-in.
const (
	crioConfig = facts.CRIOConfig
	crioDropIn = facts.CRIODropIns + "/50-kata-vfio.conf"
)

// crioWants returns CRI-O's requirements: one drop-in.
func crioWants(n node, k *kata) (*wants, error) {
	w := &wants{part: "CRI-O"}
	v := n.installed("cri-o")
	w.fact("version", v.String(), v.Source)
	before, _, ok := n.crio(w, nil)
	if !ok {
		return w, nil
	}
	text, err := k.engineFragment(".conf", map[string]string{gpuHandler: "crio/50-kata-vfio", nicHandler: "crio/51-kata-vfio-nic"})
	if err != nil {
		return nil, err
	}
	text = withCDIDirs(text, before.Sub("crio", "runtime").Setting("", "cdi_spec_dirs").List())
	n.checkCRIO(w, k, before, text)
	if k.flavour == blueprint.FlavorGo {
		w.warn(rule.AnnotationsPassed, "", "CRI-O passes every annotation of a pod to Kata, and its Go runtime may add devices because of them (RT-003).",
			"Use Kata's Rust runtime, or refuse cdi.k8s.io/* and io.katacontainers.* at admission, as the chart's policies do.")
	}
	manager := before.Sub("crio", "runtime").Setting(crioConfig, "cgroup_manager")
	// systemd is CRI-O's default (crio.conf(5): cgroup_manager).
	w.compareCgroups(n.kubelet(), cmp.Or(manager.Text(), "systemd"), manager.File, "cgroup_manager")
	if !w.refused() {
		w.file(crioDropIn, []byte(text), k.called()+", NRI and the CDI directories", state.CRIORestart)
		w.restarted(n, blueprint.RuntimeCRIO, crioDropIn)
	}
	return w, nil
}

// crio returns CRI-O's configuration with bootstrap's drop-in in place of the existing one.
func (n node) crio(w *wants, ours []byte) (all facts.Table, last string, ok bool) {
	loaded := facts.LoadCRIO(n.with(crioDropIn, ours))
	for _, file := range loaded.Damaged {
		w.refuse(rule.FileDamaged, file.Path, "CRI-O would not start with "+file.Path+": "+cause(file), "Correct or remove it.")
	}
	if len(loaded.Damaged) > 0 {
		return nil, "", false
	}
	return loaded.All, loaded.Files[len(loaded.Files)-1].Path, true
}

// checkCRIO refuses settings of the handlers in other files, and settings that override bootstrap's.
func (n node) checkCRIO(w *wants, k *kata, before facts.Table, text string) {
	ours, err := facts.ParseTable(n.with(crioDropIn, []byte(text)).Read(crioDropIn))
	if err != nil {
		w.refuse(rule.FileDamaged, crioDropIn, err.Error(), "Remove control characters from the CDI directories in the other files.")
		return
	}
	for _, h := range k.handlers {
		w.refuseOther(h.name, before, ours, "crio", "runtime", "runtimes", h.name)
	}
	after, last, ok := n.crio(w, []byte(text))
	if !ok {
		return
	}
	want := before.Clone()
	want.MergeCRIO(ours)
	w.refuseDifferences(want, after, last)
}

// refuseOther refuses an existing handler of the same name that differs from bootstrap's.
func (w *wants) refuseOther(handler string, theirs, ours facts.Table, section ...string) {
	mine := ours.Sub(section...).Settings()
	all := theirs.Sub(section...).Settings()
	for _, name := range sortedKeys(all) {
		s := all[name]
		if !slices.Contains(siteSettings(), s.Name) && !s.Is(mine[name]) {
			w.refuse(rule.HandlerConflict, s.File, fmt.Sprintf("%s defines a handler %s: %s.", s.File, handler, s.Fact().Value),
				"Remove or rename that handler.")
			return
		}
	}
}

// siteSettings are the settings of the handler that a site may add in a separate file.
func siteSettings() []string { return []string{"snapshotter"} }
