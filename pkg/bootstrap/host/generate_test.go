package host_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// generator makes the files of one node.
type generator struct {
	*rand.Rand
	files map[string]string
}

func generate(random *rand.Rand) map[string]string {
	g := &generator{random, map[string]string{kernelargs.Running: "root=/dev/sda1 ro quiet\n"}}
	loaders := []func(){
		g.grub, g.grubEntries, g.entries, g.uBootMenu, g.extlinux, g.updateExtlinux, g.flatcar, g.armbian, g.proxmox, g.refind, g.limine, g.kernelOptions,
	}
	loaders[g.IntN(len(loaders))]()
	if g.IntN(4) == 0 {
		g.files[kernelargs.Tuned] = g.settings("TUNED_BOOT_CMDLINE")
	}
	if g.IntN(8) == 0 { // what is running counts where no file has it
		g.files = map[string]string{kernelargs.Running: g.line() + "\n", kernelargs.ArmbianConfig: "extraargs=quiet\n"}
	}
	return g.files
}

func (g *generator) pick(from ...string) string { return from[g.IntN(len(from))] }

// word is a word of a command line: of four, three are harmless. Bad ones are of all arguments that weaken isolation.
func (g *generator) word() string {
	if g.IntN(4) > 0 {
		return g.pick("quiet", "ro", "root=UUID=1-2", "intel_iommu=on", "console=ttyS0,115200n8", "intremap=on", "xintremap=off", "intremap.off=1",
			"intremap", "init=/bin/sh", "a=intremap=off", "iommu=noforce", "amd_iommu=fullflush", "vfio.enable_unsafe_noiommu_mode=0")
	}
	if g.IntN(8) == 0 {
		all := kernelargs.WeakeningParameters()
		return all[g.IntN(len(all))].Name + "=" + g.pick("1", "Y", "on")
	}
	all := kernelargs.Weakenings()
	w := all[g.IntN(len(all))]
	bad := w.Word
	if bad == "" {
		bad = "downstream"
	}
	return w.Name + "=" + g.pick(bad, "x,"+bad, bad+",x", bad+","+bad)
}

func (g *generator) line() string {
	var words []string
	for range g.IntN(4) {
		words = append(words, g.word())
	}
	if g.IntN(8) == 0 {
		words = append(words, "--", g.word())
	}
	return strings.Join(words, g.pick(" ", "  ", "\t"))
}

// value is a value as a shell reads it.
func (g *generator) value() string {
	line := g.line()
	switch g.IntN(6) {
	case 0:
		return "'" + line + "'"
	case 1: // continued within quotes
		return `"` + strings.ReplaceAll(line, " ", " \\\n") + `"`
	case 2: // pieces
		half := len(line) / 2
		return `"` + line[:half] + `"'` + line[half:] + `'`
	case 3:
		return strings.NewReplacer(" ", `\ `, "\t", "\\\t").Replace(line)
	case 4:
		return `"$EXTRA ${MORE} ` + line + `"`
	}
	return `"` + line + `"`
}

// assignment is one in the forms that settings of boot loaders have.
func (g *generator) assignment(variable string) string {
	set := variable + "=" + g.value()
	switch g.IntN(9) {
	case 0:
		return "# " + strings.ReplaceAll(set, "\n", " ")
	case 1:
		return "export " + set
	case 2:
		return variable + "+=" + `" ` + g.line() + `"`
	case 3:
		return set + " # " + g.line()
	case 4:
		return "if [ -e /x ]; then\n  " + set + "\nfi"
	case 5:
		return "[ -e /x ] && " + set
	case 6:
		return variable + `="$` + variable + " " + g.line() + `"`
	case 7:
		return g.pick("EXTRA", "MORE") + "=" + g.value()
	}
	return g.pick("", "  ", "\t") + set
}

// settings is a file in shell syntax.
func (g *generator) settings(variables ...string) string {
	var all strings.Builder
	for range g.IntN(5) {
		all.WriteString(g.pick("", "\n", "# a comment: it's one\n", "GRUB_TIMEOUT=5\n", "OTHER=\"intremap=off\"\n"))
		all.WriteString(g.assignment(g.pick(variables...)) + g.pick("\n", "\n\n", " ; OTHER=1\n"))
	}
	return all.String()
}

// directives is a file of lines that a keyword begins.
func (g *generator) directives(keyword string, always bool) string {
	var all strings.Builder
	all.WriteString(g.pick("", "title Linux\n", "# "+keyword+" intremap=off\n", "\n"))
	lines := g.IntN(3)
	if always {
		lines++
	}
	for range lines {
		all.WriteString(g.pick("", "  ", "\t") + g.pick(keyword, strings.ToUpper(keyword)) + g.pick(" ", "\t", " \t ") + g.line() + g.pick("", " ", "\t") + g.pick("\n", "\n\n", "\n# intremap=off\n"))
	}
	return all.String()
}

func (g *generator) dropIns(dir, ext string, variables ...string) {
	for i := range g.IntN(3) {
		g.files[fmt.Sprintf("%s/%d0-site%s", dir, i, ext)] = g.settings(variables...)
	}
	if g.IntN(4) == 0 {
		g.files[dir+"/99-site"+ext+".bak"] = variables[0] + "=\"intremap=off\"\n"
	}
}

func grubVariables() []string { return []string{"GRUB_CMDLINE_LINUX", "GRUB_CMDLINE_LINUX_DEFAULT"} }

func (g *generator) grub() {
	g.files[kernelargs.GRUBDefaults] = g.settings(grubVariables()...)
	g.files[g.pick(kernelargs.GRUBConfigs()...)] = "linux /vmlinuz root=/dev/sda1 ro\n"
	g.files["usr/sbin/grub-mkconfig"] = ". /etc/default/grub\nfor x in ${sysconfdir}/default/grub.d/*.cfg\n"
	g.files["usr/sbin/update-grub"] = "exec grub-mkconfig\n"
	g.dropIns(kernelargs.GRUBDropIns, ".cfg", grubVariables()...)
}

// grubEntries has GRUB's variables, which entries use, in an environment block and in its configuration.
func (g *generator) grubEntries() {
	g.files[kernelargs.GRUBDefaults] = "GRUB_ENABLE_BLSCFG=true\n" + g.settings(grubVariables()...)
	g.files[kernelargs.GRUB2Config] = "set tuned_params=\"" + g.line() + "\"\nblscfg\n"
	g.files[kernelargs.GRUB2Environment] = "# GRUB Environment Block\nsaved_entry=0\nextra_args=" + g.line() + "\n"
	g.bls("boot")
	g.kernelInstall()
}

// bls makes entries of the Boot Loader Specification.
func (g *generator) bls(partition string) {
	for i := range 1 + g.IntN(2) {
		text := g.directives("options", false)
		if g.IntN(3) == 0 {
			text += "options root=/dev/sda1 " + g.pick("$tuned_params", "${extra_args}", "$nothing") + " " + g.word() + "\n"
		}
		g.files[fmt.Sprintf("%s/loader/entries/%d.conf", partition, i)] = text
	}
}

func (g *generator) kernelInstall() {
	if g.IntN(2) == 0 {
		g.files[g.pick(kernelargs.KernelInstall, kernelargs.VendorKernelInstall)] = g.line() + "\n"
	}
}

func (g *generator) entries() {
	g.bls(g.pick(kernelargs.Partitions()...))
	g.kernelInstall()
	if g.IntN(3) == 0 { // Garden Linux makes the file from fragments
		g.files["etc/os-release"] = "ID=gardenlinux\n"
		g.files[kernelargs.KernelFragments+"/10-site.cfg"] = g.settings("CMDLINE_LINUX")
	}
}

func (g *generator) uBootMenu() {
	g.files[kernelargs.UBootDefaults] = g.settings("U_BOOT_PARAMETERS")
	g.files["usr/sbin/u-boot-update"] = "for file in /etc/u-boot-menu/conf.d/*.conf\n"
	g.files[kernelargs.ExtlinuxConfig] = "append root=/dev/sda1 ro\n"
	g.dropIns(kernelargs.UBootDropIns, ".conf", "U_BOOT_PARAMETERS")
}

func (g *generator) extlinux() {
	g.files[g.pick(kernelargs.ExtlinuxConfig, kernelargs.SyslinuxConfig)] = "label l0\n" + g.directives("append", true)
}

func (g *generator) updateExtlinux() {
	g.files[kernelargs.UpdateExtlinux] = "overwrite=1\n" + g.settings("default_kernel_opts")
	g.files["sbin/update-extlinux"] = "#!/bin/sh\n"
	g.files[kernelargs.SyslinuxConfig] = "APPEND root=/dev/sda1 ro\n"
}

func (g *generator) flatcar() {
	g.files["etc/os-release"] = "ID=flatcar\n"
	g.files[g.pick(kernelargs.OEM, kernelargs.VendorOEM)] = strings.ReplaceAll(g.settings("linux_append"), "export ", "set ")
}

func (g *generator) armbian() {
	g.files[kernelargs.ArmbianConfig] = "verbosity=1\n" + g.pick("", "#extraargs=intremap=off\n") + "extraargs=" + g.line() + "\n"
}

// proxmox starts by systemd-boot or by GRUB.
func (g *generator) proxmox() {
	if g.IntN(2) == 0 {
		g.grub()
	} else {
		g.files[kernelargs.KernelInstall] = g.line() + "\n"
	}
	g.files["etc/kernel/proxmox-boot-uuids"] = "1234-5678\n"
	g.files["usr/sbin/proxmox-boot-tool"] = "#!/bin/sh\n"
}

func (g *generator) refind() {
	text := "# comment\n"
	for range g.IntN(3) {
		text += `"Boot with standard options"` + g.pick(" ", "\t", "   ") + `"` + g.line() + `"` + "\n"
	}
	g.files[kernelargs.REFIndConfig] = text
}

func (g *generator) limine() {
	g.files[kernelargs.LimineDefaults] = g.settings("KERNEL_CMDLINE")
	g.files[kernelargs.LimineConfig] = "/Linux\n    protocol: linux\n    cmdline: " + g.line() + "\n"
}

// kernelOptions is RHEL 8: entries take their arguments from GRUB's environment block.
func (g *generator) kernelOptions() {
	maps.Copy(g.files, map[string]string{
		kernelargs.GRUBDefaults:      "GRUB_ENABLE_BLSCFG=true\n" + g.settings(grubVariables()...),
		kernelargs.GRUB2Config:       "blscfg\n",
		kernelargs.GRUB2Environment:  "# GRUB Environment Block\nkernelopts=" + g.line() + "\n",
		"boot/loader/entries/0.conf": "title Linux\noptions " + g.pick("$kernelopts", "$kernelopts $tuned_params", "${kernelopts} "+g.word()) + "\n",
	})
}
