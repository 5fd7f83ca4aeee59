package containers

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const (
	// dropInName is the name of bootstrap's drop-in.
	dropInName = "kata-gpu.toml"
	// serviceDropIn makes systemd start containerd with a configuration below /etc.
	serviceDropIn = "/etc/systemd/system/containerd.service.d/50-kata-vfio-config.conf"
)

// containerdFiles are the files of containerd's configuration.
type containerdFiles struct {
	// main is the file that containerd is started with, or will be started with. dropIn is bootstrap's drop-in.
	main, dropIn string
	// vendor is the file below /usr that containerd is started with now, which main will import.
	vendor string
	// distribution is the Kubernetes distribution that starts containerd, or nil. generated is true if the distribution also
	// writes main at each start, so that an edit would be lost.
	distribution *facts.Distribution
	generated    bool
	// program is the containerd that is started; empty if it is unknown.
	program string
	// service is the content of a drop-in for containerd's service, or empty if none is needed.
	service string
}

// why describes the drop-in, and the effect of the restart.
func (at *containerdFiles) why(k *kata) string {
	why := k.called() + ", CDI and NRI"
	if at.distribution == nil || at.distribution.Alone {
		return why
	}
	name := at.distribution.Name
	return why + "; " + name + " starts containerd, so " + name + " restarts with its kubelet (on a server also its API server); pods keep running"
}

// hasContainerd reports whether the node has containerd.
func (n node) hasContainerd() bool {
	at := facts.FindContainerd(n)
	return at.Unit != nil || at.Distribution != nil || n.exists(facts.ContainerdConfig) || slices.ContainsFunc(containerdBinaries(), n.exists)
}

func containerdBinaries() []string {
	return []string{"/usr/bin/containerd", "/usr/local/bin/containerd", "/usr/sbin/containerd", "/opt/bin/containerd"}
}

// containerdFiles determines the files of containerd's configuration.
func (n node) containerdFiles() containerdFiles {
	place := facts.FindContainerd(n, serviceDropIn)
	at := containerdFiles{
		main: place.Main, dropIn: path.Join(facts.ContainerdDropIns, dropInName), program: place.Program, distribution: place.Distribution,
	}
	if d := at.distribution; d != nil {
		at.generated = d.Writes(n)
		if d.DropIns != "" {
			at.dropIn = path.Join(d.DropIns, dropInName)
		}
		return at
	}
	if strings.HasPrefix(place.Main, "/usr/") {
		// /usr belongs to the distribution, so a file below /etc imports the vendor's. The empty ExecStart= clears the
		// unit's own command: a service that is not of the type oneshot has only one (systemd.service(5)).
		at.main, at.vendor = facts.ContainerdConfig, place.Main
		at.service = fmt.Sprintf("# %s belongs to the distribution; this file imports it.\n[Service]\nExecStart=\nExecStart=%s\n",
			at.vendor, place.Unit.StartWith(facts.ContainerdConfig, "--config", "-c"))
	}
	return at
}

// startsWith requires that containerd starts with a configuration below /etc instead of /usr.
func (w *wants) startsWith(at containerdFiles) {
	if at.service != "" {
		w.file(serviceDropIn, []byte(at.service), "containerd reads "+at.main+", which imports "+at.vendor,
			state.UnitsReload, state.ContainerdRestart)
	}
}

// placeDropIn finds a directory of drop-ins that a generated configuration imports, or that its distribution reads.
func (c *containerd) placeDropIn() bool {
	if !c.at.generated {
		return true
	}
	d := c.at.distribution
	c.warnOfImports()
	t, err := facts.ParseTable(c.node.with(c.at.main, []byte(c.text)).Read(c.at.main))
	if err != nil {
		c.wants.refuse(rule.FileDamaged, c.at.main, err.Error(), c.repair(c.at.main, "Correct the file."))
		return false
	}
	for _, pattern := range t.Setting("", "imports").List() {
		// Another pattern may not match the drop-in's name, and may be of a directory for something else.
		if path.IsAbs(pattern) && path.Base(pattern) == "*.toml" && !strings.Contains(path.Dir(pattern), "*") {
			c.at.dropIn = path.Join(path.Dir(pattern), dropInName)
			return true
		}
	}
	if d.Merges || !c.node.exists(c.at.main) && d.DropIns != "" {
		return c.importDropIns()
	}
	c.wants.refuse(rule.GeneratedFile, c.at.main, fmt.Sprintf("%s is written by %s at each start and imports no directory, so an edit would be lost.", c.at.main, d.Name), c.importFix())
	return false
}

// importDropIns adds the distribution's directory to the imports that bootstrap assumes main to have, because the distribution
// adds it at its next start. Bootstrap does not edit main itself.
func (c *containerd) importDropIns() bool {
	d := c.at.distribution
	text, err := addImport(c.at.main, c.text, path.Join(d.DropIns, "*.toml"))
	if err != nil {
		c.wants.refuse(rule.FileDamaged, c.at.main, err.Error(), c.repair(c.at.main, "Correct the file."))
		return false
	}
	c.text = text
	if !d.Merges {
		c.wants.warn(rule.NotStartedYet, c.at.dropIn, fmt.Sprintf("%s did not start on this node yet. Its configuration imports %s/*.toml from %s %s on.", d.Name, d.DropIns, d.Name, d.Since),
			"Install a release that does, and run kata-vfio-bootstrap verify after its first start.")
	}
	return true
}

// warnOfImports warns of a template with which containerd does not start after the distribution's next upgrade.
func (c *containerd) warnOfImports() {
	d := c.at.distribution
	template, ok := d.Template(c.node)
	if !ok || !facts.ImportsTwice(template) {
		return
	}
	c.wants.warn(rule.TemplateImportsTwice, template.Path, fmt.Sprintf("%s has imports and includes the template of %s, which itself has imports from %s %s on. containerd does not start with both.", template.Path, d.Name, d.Name, d.Since),
		fmt.Sprintf("Upgrade to %s %s or newer, and remove the line imports from the template before the upgrade restarts %s. Then run bootstrap again.", d.Name, d.Since, d.Name))
}

// importFix describes how to make a generated configuration import a directory.
func (c *containerd) importFix() string {
	d := c.at.distribution
	template, has := d.Template(c.node)
	again := fmt.Sprintf("run %s, then run bootstrap again.", d.Restart())
	switch {
	case d.DropIns == "":
		return fmt.Sprintf("Add imports = [\"%s/*.toml\"] to the top of %s, %s", facts.ContainerdDropIns, d.Templates[0], again)
	case has && c.otherVersion(template.Value):
		return c.versionFix(template.Path)
	case has && !facts.HasBase(template):
		return fmt.Sprintf("%s replaces the template of %s. Add imports = [\"%s/*.toml\"] to its top, %s", template.Path, d.Name, d.DropIns, again)
	}
	return fmt.Sprintf("Upgrade to %s %s or newer, which imports %s/*.toml, then run bootstrap again. Don't add imports to a template that includes {{ template \"base\" . }}: after the upgrade containerd would not start.",
		d.Name, d.Since, d.DropIns)
}

// otherVersion reports whether a template can't have made the configuration, because each states another version.
func (c *containerd) otherVersion(template string) bool {
	theirs, ours := facts.StatedVersion(template), facts.StatedVersion(c.text)
	return theirs != "" && ours != "" && theirs != ours
}

// versionFix says how to put the settings of a template into effect if the template states another version than the
// configuration. K3s and RKE2 choose the version by the template's name: a config.toml.tmpl left over from containerd 1 sets
// the configuration back to version 2 (k3s pkg/agent/containerd/config.go).
func (c *containerd) versionFix(template string) string {
	d := c.at.distribution
	return fmt.Sprintf("%s did not write the file from %s: their versions differ. At its next start it would. "+
		"Move that template's own settings, in the file's version, to %s below a line {{ template \"base\" . }}, and remove %s. "+
		"Upgrade to %s %s or newer, which imports %s/*.toml, then run bootstrap again.",
		d.Name, template, d.Templates[0], template, d.Name, d.Since, d.DropIns)
}

// repair says what to correct if a file is damaged: the file, or the source from which its distribution generates it.
func (c *containerd) repair(name, otherwise string) string {
	if d := c.at.distribution; d != nil {
		if text := d.Repair(c.node, name); text != "" {
			return text
		}
	}
	return otherwise
}
