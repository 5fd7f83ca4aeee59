package containers

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/facts/config"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// containerd is the containerd of one node, and the requirements for it.
type containerd struct {
	*wants
	node node
	kata *kata
	at   containerdFiles
	// major is containerd's major version, -1 if no file shows it; version is that of the configuration; rule is how its
	// files are merged.
	major   int
	version int64
	rule    config.Rule
	// versionOf is the file that sets the version.
	versionOf string
	// text is the main file without bootstrap's import.
	text string
}

// containerdWants returns what containerd needs: a drop-in, and its import.
func containerdWants(n node, k *kata) (*wants, error) {
	c := &containerd{wants: &wants{part: "containerd"}, node: n, kata: k, at: n.containerdFiles()}
	v := n.containerdVersion(c.at.program, containerdBinaries()...)
	c.major = v.Major
	c.fact("version", v.String(), v.Source)
	c.fact("configuration", c.at.main, c.at.main)
	if v.older(2, 0) {
		c.warn(rule.VersionTooOld, v.Source, fmt.Sprintf("containerd is version %s, but kata-vfio needs 2.2 or newer: older versions have no required NRI plugins.", v),
			"Install containerd 2.2 or newer.")
	}
	if !c.read() || !c.chooseRule() {
		return c.wants, nil
	}
	return c.wants, c.decide()
}

// read reads the main file, or returns the needed content if there is none.
func (c *containerd) read() bool {
	if target, ok := c.node.link(c.at.main); ok && !c.at.generated {
		c.refuse(rule.FileWrongType, c.at.main, fmt.Sprintf("%s is a link to %s, and bootstrap does not write through links.", c.at.main, target),
			"Replace the link with a file, or add the import to its target: imports = [\""+config.ContainerdDropIns+"/*.toml\"]")
		return false
	}
	file := c.node.Read(c.at.main)
	switch {
	case file.OK():
		c.text = file.Value
		return c.parse(file)
	case file.Status != facts.Absent:
		c.refuse(rule.FileUnreadable, c.at.main, c.at.main+" can't be read: "+file.Err, "Replace it with a file that root can read.")
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
			c.refuse(rule.FileUnreadable, c.at.vendor, "containerd is started with "+c.at.vendor+", which can't be read: "+cause(file), "Correct containerd's service.")
			return false
		}
		return c.parse(file)
	}
	c.versionOf, c.version = c.at.main, 2         // every containerd supports version 2
	if c.major >= 2 || c.at.distribution != nil { // a distribution whose containerd is older is not supported
		c.version = 3
	}
	return true
}

func (c *containerd) parse(file facts.Fact) bool {
	t, err := config.Parse(file)
	if err != nil {
		c.refuse(rule.FileDamaged, file.Path, "containerd's configuration can't be parsed: "+err.Error(), c.repair(file.Path, "Correct the file."))
		return false
	}
	c.version, c.versionOf = t.Setting(file.Path, "version").Number(), file.Path
	return true
}

// chooseRule determines how containerd merges files, from the versions of containerd and the configuration.
func (c *containerd) chooseRule() bool {
	switch {
	case c.version < 2:
		c.refuse(rule.ConfigVersionUnsupported, c.versionOf, fmt.Sprintf("%s has version 1 or none, which can't be merged with newer files.", c.versionOf),
			"Migrate it: run containerd config migrate > config.new, review the result, and replace the file with it. "+
				"If you have no settings in it (Docker's package ships it with CRI disabled), start from containerd config default.")
	case c.version > 4:
		c.refuse(rule.ConfigVersionUnsupported, c.versionOf, fmt.Sprintf("%s has the unknown version %d.", c.versionOf, c.version),
			"Use version 2, 3 or 4, or a kata-vfio that supports this version.")
	case c.version > 2 && c.major == 1:
		c.refuse(rule.VersionTooOld, c.versionOf, fmt.Sprintf("%s has version %d, which containerd 1 does not read.", c.versionOf, c.version),
			"Install containerd 2.2 or newer.")
	default:
		if c.version == 2 && c.major < 2 {
			c.rule = config.BySection
		}
		return true
	}
	return false
}

// decide requires the files, after it verified that they have the intended effect and no other.
func (c *containerd) decide() error {
	if !c.placeDropIn() {
		return nil
	}
	before := c.before()
	if c.damaged(before) || c.disabled(before.All) {
		return nil
	}
	text, err := c.kata.engineFragment(".toml", map[string]string{gpuHandler: "containerd/kata-gpu", nicHandler: "containerd/kata-vfio"})
	if err != nil {
		return err
	}
	text = withCDIDirs(text, before.All.Sub("plugins", config.CRIRuntime).Setting("", "cdi_spec_dirs").List())
	text = withShimCleanup(text, before.All.Timeout("", config.ShimCleanup))
	ours := config.LoadContainerd(c.node.with(c.at.dropIn, []byte(text)), c.at.dropIn, config.ByKey)
	if c.damaged(ours) {
		return nil
	}
	for _, h := range c.kata.handlers {
		c.refuseOther(h.name, before.All, ours.All, handlerSection(h.name)...)
	}
	dropIn := []byte(text)
	if c.rule == config.BySection {
		if dropIn, err = sections(c.kata, before, ours); err != nil {
			return err
		}
	}
	main, ok := c.imported(dropIn)
	if !ok || c.refused() {
		return nil
	}
	c.check(before, ours, main, dropIn)
	if !c.refused() {
		c.want(main, dropIn)
	}
	return nil
}

// handlerSection is the path of a handler's section.
func handlerSection(name string) []string {
	return []string{"plugins", config.CRIRuntime, "containerd", "runtimes", name}
}

// before reads the files without bootstrap's own. A file with which containerd 1 would not start shows that containerd 2
// reads them.
func (c *containerd) before() *config.Containerd {
	before := c.load(c.text, nil)
	if c.rule == config.BySection && before.Version > 2 {
		c.rule = config.ByKey
		before = c.load(c.text, nil)
		if c.major == 1 {
			c.refuse(rule.VersionTooOld, c.at.main, fmt.Sprintf("%s imports a file of version %d, which containerd 1 does not read.", c.at.main, before.Version),
				"Install containerd 2.2 or newer, or remove the file from the imports.")
		}
	}
	return before
}

// load reads the files with the given content of the main file and the drop-in.
func (c *containerd) load(main string, dropIn []byte) *config.Containerd {
	return config.LoadContainerd(c.node.with(c.at.main, []byte(main)).with(c.at.dropIn, dropIn), c.at.main, c.rule)
}

// damaged refuses files that containerd does not start with.
func (c *containerd) damaged(loaded *config.Containerd) bool {
	for _, file := range loaded.Damaged {
		c.refuse(rule.FileDamaged, file.Path, "containerd would not start with "+file.Path+": "+cause(file), c.repair(file.Path, "Correct the file, or remove it from the imports."))
	}
	return len(loaded.Damaged) > 0
}

// disabled refuses a node with required plugins disabled, as some packages ship it.
func (c *containerd) disabled(all config.Table) bool {
	s := all.Setting(c.at.main, "disabled_plugins")
	needed := []string{"cri", config.CRIBefore, config.CRIRuntime, "io.containerd.cri.v1.images", config.NRI}
	for _, name := range s.List() {
		if slices.Contains(needed, name) {
			c.refuse(rule.PluginDisabled, s.File, fmt.Sprintf("%s disables the plugin %s, which pods need.", s.File, name),
				"Remove it from disabled_plugins.")
			return true
		}
	}
	return false
}

// check refuses files that containerd would merge to something other than what is required.
func (c *containerd) check(before, ours *config.Containerd, main string, dropIn []byte) {
	after := c.load(main, dropIn)
	if c.damaged(after) {
		return
	}
	want := before.All.Clone()
	want.Merge(ours.All)
	c.refuseDifferences(want, after.All, after.Files[len(after.Files)-1].Path)
	for _, h := range c.kata.handlers {
		if h.block && !after.All.Sub(handlerSection(h.name)...).Setting("", "snapshotter").IsSet() {
			c.warn(rule.SnapshotterMissing, c.at.dropIn, "Kata's configuration shares no directory with the guest, but the handler has no snapshotter that makes block devices.",
				"Set snapshotter (such as erofs) for the handler "+h.name+" in your own drop-in, and for its images.")
		}
	}
	c.checkCgroups(after.All)
}

// want adds the files to the requirements.
func (c *containerd) want(main string, dropIn []byte) {
	c.file(c.at.dropIn, dropIn, c.at.why(c.kata), state.ContainerdRestart)
	if c.rule == config.BySection {
		// The repeated sections may have passwords of registries.
		c.Files[len(c.Files)-1].Mode = 0o600
	}
	c.restarted(c.node, RuntimeContainerd, c.at.dropIn)
	if !c.at.generated {
		c.file(c.at.main, []byte(main), "containerd imports "+c.at.dropIn, state.ContainerdRestart)
	}
	c.startsWith(c.at)
}

// sections returns bootstrap's drop-in in version 2, for a containerd that may be 1.x. In 1.x a section of a later file
// replaces the whole section of earlier files, so the drop-in repeats their settings. containerd 2 merges it with the
// same result. Timeouts merge key by key in both.
func sections(k *kata, before, ours *config.Containerd) ([]byte, error) {
	runtime := ours.All.Sub("plugins", config.CRIRuntime).Clone()
	for _, h := range k.handlers {
		handler := runtime.Sub("containerd", "runtimes", h.name)
		handler["sandbox_mode"] = handler["sandboxer"]
		delete(handler, "sandboxer")
	}
	all := before.Written.Sub("plugins").Clone()
	all.Merge(config.Table{config.CRIBefore: runtime, config.NRI: ours.All.Sub("plugins", config.NRI).Clone()})
	plugins := config.Table{config.CRIBefore: all[config.CRIBefore], config.NRI: all[config.NRI]}
	text, err := toml.Marshal(map[string]any{"version": 2, "plugins": plugins.Plain(), "timeouts": ours.All.Sub("timeouts").Plain()})
	if err != nil {
		return nil, fmt.Errorf("write a drop-in of version 2: %w", err)
	}
	return append([]byte(sectionsHead(k, before)), text...), nil
}

func sectionsHead(k *kata, before *config.Containerd) string {
	var names []string
	for _, file := range before.Files {
		if file.Value != "" {
			names = append(names, file.Path)
		}
	}
	return fmt.Sprintf(`# Sets up %s, Kata's runtime for pods with devices. kata-vfio-bootstrap wrote this file.
#
# In containerd 1 a plugin's section here replaces that section of the files before: so it repeats what
# %s
# say, with our settings put in. Run kata-vfio-bootstrap apply again after a change of theirs: until then it does
# not count, and kata-vfio-bootstrap verify names it.

`, k.called(), strings.Join(names, ", "))
}
