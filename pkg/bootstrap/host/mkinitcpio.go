package host

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// mkinitcpioFile sorts after other drop-ins, so that none of them replaces the arrays that it appends to.
const mkinitcpioFile = "etc/mkinitcpio.conf.d/zz-kata-vfio.conf"

// mkinitcpioDropIn adds bootstrap's rules to the image. The hooks udev and systemd of mkinitcpio add only a fixed list of
// rules. A missing file would make the build of the image fail, so a file is added only if it exists. Bash reads the drop-in,
// and the status of its last command counts.
const mkinitcpioDropIn = `MODULES+=(vfio_pci)
for file in /` + rulesFile + ` /` + optionsFile + `; do
	if [ -e "$file" ]; then
		FILES+=("$file")
	fi
done
`

// mkinitcpio refuses a configuration that leaves the drop-in out: mkinitcpio reads drop-ins since version 36, but not if
// a preset names a configuration file; and without udev in the image, no rule applies (mkinitcpio.conf(5),
// mkinitcpio(8)).
func (n *node) mkinitcpio() {
	if program := n.script("usr/bin/mkinitcpio"); !strings.Contains(program, "_d_config") {
		n.problem(state.Problem{
			Part: initramfsPart, Code: rule.EarlyBindingUnsupported, Fatal: true, Path: "usr/bin/mkinitcpio", Text: "kernel.earlyBinding: this mkinitcpio reads no drop-ins of /etc/mkinitcpio.conf.d",
			Fix: "install mkinitcpio 36 or newer, or remove kernel.earlyBinding",
		})
		return
	}
	const presets = "etc/mkinitcpio.d"
	names, _ := n.tree.ReadDir(presets) // a node without a kernel's package has none
	for _, name := range names {
		file := path.Join(presets, name)
		for _, c := range commandLines(n.script(file)) {
			if variable, value, ok := strings.Cut(c.line, "="); ok && strings.HasSuffix(name, ".preset") && strings.HasSuffix(variable, "_config") && value != "" {
				n.problem(state.Problem{
					Part: initramfsPart, Code: rule.EarlyBindingUnsupported, Fatal: true, Path: file,
					Text: fmt.Sprintf("kernel.earlyBinding: /%s line %d sets %s, so mkinitcpio leaves out the drop-ins of /etc/mkinitcpio.conf.d", file, c.number, variable),
					Fix:  "remove the line if it names /etc/mkinitcpio.conf, which is the default",
				})
			}
		}
	}
	n.mkinitcpioHooks()
}

// hooksArray assigns or appends to HOOKS, an array of bash over one line or several, or a string as before version 24.
var hooksArray = regexp.MustCompile(`(?m)^[ \t]*HOOKS(\+?)=[("']+([^)"']*)`)

func (n *node) mkinitcpioHooks() {
	const dropIns = "etc/mkinitcpio.conf.d"
	files := []string{"etc/mkinitcpio.conf"}
	names, _ := n.tree.ReadDir(dropIns) // usually it does not exist
	for _, name := range names {
		if strings.HasSuffix(name, ".conf") {
			files = append(files, path.Join(dropIns, name))
		}
	}
	var hooks []string
	for _, file := range files {
		text, _ := n.text(initramfsPart, file)
		for _, m := range hooksArray.FindAllStringSubmatch(text, -1) {
			if m[1] == "" {
				hooks = nil
			}
			hooks = append(hooks, strings.Fields(m[2])...)
		}
	}
	if !slices.Contains(hooks, "udev") && !slices.Contains(hooks, "systemd") {
		n.problem(state.Problem{
			Part: initramfsPart, Code: rule.EarlyBindingUnsupported, Fatal: true, Path: files[0],
			Text: "kernel.earlyBinding: HOOKS of mkinitcpio has neither udev nor systemd, so no udev rule applies in the initial RAM file system",
			Fix:  "add the hook udev or systemd to HOOKS in /etc/mkinitcpio.conf, or remove kernel.earlyBinding",
		})
	}
}

// booster has one file of settings, which users own, and runs no udev (github.com/anatol/booster, manual page): rules
// have no effect in its images, but a driver that is not in the image binds nothing before the node's udev runs.
func (n *node) booster() {
	var drivers []string
	for _, a := range n.blueprint.VFIO.KeepOff {
		uevent, _, _ := n.attribute(initramfsPart, function(a, "uevent"))
		if driver := line(uevent, "DRIVER="); driver != "" && !strings.Contains(driver, "vfio") {
			drivers = append(drivers, "-"+driver)
		}
	}
	slices.Sort(drivers)
	if drivers = slices.Compact(drivers); len(drivers) == 0 {
		drivers = []string{"-DRIVER"}
	}
	n.problem(state.Problem{
		Part: initramfsPart, Code: rule.EarlyBindingUnsupported, Fatal: true, Path: "etc/booster.yaml",
		Text: "kernel.earlyBinding: booster runs no udev in the initial RAM file system, so the rules of vfio.keepOff have no effect there",
		Fix: fmt.Sprintf("keep the functions' own drivers out of the image instead: add \"modules: %s\" to /etc/booster.yaml, run /usr/lib/booster/regenerate_images, and remove kernel.earlyBinding",
			strings.Join(drivers, ",")),
	})
}
