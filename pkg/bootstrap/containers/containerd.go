package containers

import (
	"fmt"
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// containerd is the containerd of one node, and the requirements for it.
type containerd struct {
	wants *wants
	node  node
	kata  *kata
	at    containerdFiles
	// known is true if a file shows the version of containerd. version is the version of the configuration's format.
	known   bool
	version int64
	// versionFile is the file that sets the version.
	versionFile string
	// text is the main file without bootstrap's import.
	text string
}

// containerdWants returns containerd's requirements: a drop-in, and its import.
func containerdWants(n node, k *kata) (*wants, error) {
	c := &containerd{wants: &wants{part: "containerd"}, node: n, kata: k, at: n.containerdFiles()}
	v := n.containerdVersion(c.at.program, containerdBinaries()...)
	c.known = v.known()
	c.wants.fact("version", v.String(), v.Source)
	c.wants.fact("configuration", c.at.main, c.at.main)
	if v.older(2, 0) {
		c.wants.refuse(rule.VersionTooOld, v.Source, fmt.Sprintf("containerd is version %s, but kata-vfio needs 2.2 or newer: older versions have no required NRI plugins.", v),
			"Install containerd 2.2 or newer, then run bootstrap again.")
		return c.wants, nil
	}
	if !c.read() || !c.supported() {
		return c.wants, nil
	}
	return c.wants, c.decide()
}

// read sets the text to that of the main file, or to the text that a new main file needs. It returns false if it refused the
// node.
func (c *containerd) read() bool {
	if target, ok := c.node.link(c.at.main); ok && !c.at.generated {
		c.wants.refuse(rule.FileWrongType, c.at.main, fmt.Sprintf("%s is a link to %s, and bootstrap does not write through links.", c.at.main, target),
			"Replace the link with a file, or add the import to its target: imports = [\""+facts.ContainerdDropIns+"/*.toml\"]")
		return false
	}
	file := c.node.Read(c.at.main)
	switch {
	case file.OK():
		c.text = file.Value
		return c.parse(file)
	case file.Status != facts.Absent:
		c.wants.refuse(rule.FileUnreadable, c.at.main, c.at.main+" can't be read: "+file.Err, "Replace it with a file that root can read.")
		return false
	}
	if !c.parseVendor() {
		return false
	}
	c.text = fmt.Sprintf("version = %d\n", c.version)
	if c.at.vendor != "" {
		c.text += fmt.Sprintf("imports = [%q]\n", c.at.vendor)
	}
	return true
}

// parseVendor determines the configuration's version if the main file does not exist yet.
func (c *containerd) parseVendor() bool {
	if c.at.vendor != "" {
		file := c.node.Read(c.at.vendor)
		if !file.OK() {
			c.wants.refuse(rule.FileUnreadable, c.at.vendor, "containerd is started with "+c.at.vendor+", which can't be read: "+cause(file), "Correct containerd's service.")
			return false
		}
		return c.parse(file)
	}
	c.versionFile, c.version = c.at.main, 3
	if !c.known && c.at.distribution == nil { // a distribution whose containerd is older is not supported
		c.wants.warn(rule.VersionUnknown, c.at.main, "No file shows the version of containerd. Bootstrap writes files of version 3, with which containerd 1 does not start.",
			"Make sure that containerd is 2.2 or newer (containerd --version).")
	}
	return true
}

func (c *containerd) parse(file facts.Fact) bool {
	t, err := facts.ParseTable(file)
	if err != nil {
		c.wants.refuse(rule.FileDamaged, file.Path, "containerd's configuration can't be parsed: "+err.Error(), c.repair(file.Path, "Correct the file."))
		return false
	}
	c.version, c.versionFile = t.Setting(file.Path, "version").Number(), file.Path
	return true
}

// supported refuses versions of the configuration that containerd 2 does not read, or whose meaning bootstrap does not know.
func (c *containerd) supported() bool {
	switch {
	case c.version < 2:
		c.wants.refuse(rule.ConfigVersionUnsupported, c.versionFile, fmt.Sprintf("%s has version 1 or none, which can't be merged with newer files.", c.versionFile),
			"Migrate it: run containerd config migrate > config.new, review the result, and replace the file with it. "+
				"If you have no settings in it (Docker's package ships it with CRI disabled), start from containerd config default.")
	case c.version > 4:
		c.wants.refuse(rule.ConfigVersionUnsupported, c.versionFile, fmt.Sprintf("%s has the unknown version %d.", c.versionFile, c.version),
			"Use version 2, 3 or 4, or a kata-vfio that supports this version.")
	default:
		return true
	}
	return false
}

// mayBeOld refuses a configuration that containerd 1 could have, if no file shows the version of containerd. Containerd 1 does not
// start with bootstrap's drop-in, which has version 3, or before 1.7.17 and 1.6.32 ignores its sections (containerd pull request
// 10165). A node with a file of version 3 already has a containerd 2, or none that serves pods as configured.
func (c *containerd) mayBeOld(before *facts.Containerd) bool {
	if c.known || before.Version > 2 {
		return false
	}
	c.wants.refuse(rule.VersionUnknown, c.versionFile, fmt.Sprintf("%s has version 2, which containerd 1 also reads, and no file shows the version of containerd. "+
		"Containerd 1 would not start with bootstrap's drop-in, or would ignore it.", c.versionFile),
		"If containerd is 2.2 or newer (containerd --version), migrate the file to version 3: run containerd config migrate > config.new, review the result, "+
			"and replace the file with it. Otherwise install containerd 2.2 or newer.")
	return true
}

// decide requires the files, after it verified that they have the intended effect and no other.
func (c *containerd) decide() error {
	if !c.placeDropIn() {
		return nil
	}
	// Read the drop-in as empty: settings in an earlier drop-in of bootstrap are not settings of the site.
	before := c.load(c.text, nil)
	if c.damaged(before) || c.disabled(before.All) || c.mayBeOld(before) {
		return nil
	}
	text, err := c.kata.engineFragment(".toml", map[string]string{gpuHandler: "containerd/kata-gpu", nicHandler: "containerd/kata-vfio"})
	if err != nil {
		return err
	}
	text = withCDIDirs(text, before.All.Sub("plugins", facts.CRIRuntime).Setting("", "cdi_spec_dirs").List())
	text = withShimCleanup(text, before.All.Timeout("", facts.ShimCleanup))
	ours := facts.LoadContainerd(c.node.with(c.at.dropIn, []byte(text)), c.at.dropIn)
	if c.damaged(ours) {
		return nil
	}
	for _, h := range c.kata.handlers {
		c.wants.refuseOther(h.name, before.All, ours.All, handlerSection(h.name)...)
	}
	dropIn := []byte(text)
	main, ok := c.imported(dropIn)
	if !ok || c.wants.refused() {
		return nil
	}
	c.check(before, ours, main, dropIn)
	if !c.wants.refused() {
		c.want(main, dropIn)
	}
	return nil
}

// handlerSection is the path of a handler's section.
func handlerSection(name string) []string {
	return []string{"plugins", facts.CRIRuntime, "containerd", "runtimes", name}
}

// load reads the files with the given content of the main file and the drop-in.
func (c *containerd) load(main string, dropIn []byte) *facts.Containerd {
	return facts.LoadContainerd(c.node.with(c.at.main, []byte(main)).with(c.at.dropIn, dropIn), c.at.main)
}

// damaged refuses files that containerd does not start with.
func (c *containerd) damaged(loaded *facts.Containerd) bool {
	for _, file := range loaded.Damaged {
		c.wants.refuse(rule.FileDamaged, file.Path, "containerd would not start with "+file.Path+": "+cause(file), c.repair(file.Path, "Correct the file, or remove it from the imports."))
	}
	return len(loaded.Damaged) > 0
}

// disabled refuses a node with required plugins disabled, as some packages ship it.
func (c *containerd) disabled(all facts.Table) bool {
	s := all.Setting(c.at.main, "disabled_plugins")
	needed := []string{"cri", facts.CRIBefore, facts.CRIRuntime, "io.containerd.cri.v1.images", facts.NRI}
	for _, name := range s.List() {
		if slices.Contains(needed, name) {
			c.wants.refuse(rule.PluginDisabled, s.File, fmt.Sprintf("%s disables the plugin %s, which pods need.", s.File, name),
				"Remove it from disabled_plugins.")
			return true
		}
	}
	return false
}

// check refuses files that containerd would not merge into the required settings.
func (c *containerd) check(before, ours *facts.Containerd, main string, dropIn []byte) {
	after := c.load(main, dropIn)
	if c.damaged(after) {
		return
	}
	// want has the site's settings with bootstrap's on top. If containerd's own merge differs, a file that is read later
	// overrides a setting.
	want := before.All.Clone()
	want.Merge(ours.All)
	c.wants.refuseDifferences(want, after.All, after.Files[len(after.Files)-1].Path)
	for _, h := range c.kata.handlers {
		if h.block && !after.All.Sub(handlerSection(h.name)...).Setting("", "snapshotter").IsSet() {
			c.wants.warn(rule.SnapshotterMissing, c.at.dropIn, "Kata's configuration shares no directory with the guest, but the handler has no snapshotter that makes block devices.",
				"Set snapshotter (such as erofs) for the handler "+h.name+" in your own drop-in, and for its images.")
		}
	}
	c.checkCgroups(after.All)
}

// want adds the files to the requirements.
func (c *containerd) want(main string, dropIn []byte) {
	c.wants.file(c.at.dropIn, dropIn, c.at.why(c.kata), state.ContainerdRestart)
	c.wants.restarted(c.node, blueprint.RuntimeContainerd, c.at.dropIn)
	if !c.at.generated {
		c.wants.file(c.at.main, []byte(main), "containerd imports "+c.at.dropIn, state.ContainerdRestart)
	}
	c.wants.startsWith(c.at)
}
