package host

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// TalosConfig is what an administrator applies to a Talos node: bootstrap writes no files there. Sources: Talos'
// documentation "Boot Loader", "Containerd" and "Boot Assets", and its sources of 1.13 and 1.14.
type TalosConfig struct {
	// Schematic is for the Image Factory, MachineConfig a patch for talosctl.
	Schematic     string `json:"schematic"`
	MachineConfig string `json:"machineConfig"`
	// Left are the paths of files that neither can express.
	Left []string `json:"left,omitempty"`
}

// TalosConfig returns the configuration of a Talos node for the files that bootstrap writes on other systems, or nil on
// another system.
func (p *Platform) TalosConfig(files []state.File, words []string) *TalosConfig {
	if p.Loader.Kind != Talos {
		return nil
	}
	t := &talosPatch{custom: sinceTalos(p.OS.Version, 14), parameters: map[string][]string{}, contents: map[string][]string{}}
	c := &TalosConfig{Schematic: talosSchematic(words)}
	for _, f := range files {
		if !t.add(f) {
			c.Left = append(c.Left, "/"+f.Path)
		}
	}
	c.MachineConfig = t.text(words)
	return c
}

// sinceTalos reports whether a version, such as "v1.13.2", is 1.minor or newer. It is false for an unknown version.
func sinceTalos(version string, minor int) bool {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) < 2 || parts[0] != "1" {
		return false
	}
	n, err := strconv.Atoi(parts[1])
	return err == nil && n >= minor
}

func talosSchematic(words []string) string {
	return "customization:\n  extraKernelArgs: # where systemd-boot starts the node, and with grubUseUKICmdline\n" + items(words, "  - %s\n") +
		"  systemExtensions:\n    officialExtensions: [] # keep yours. Kata 4 needs an extension of your own: Sidero's kata-containers has Kata 3\n"
}

// talosPatch collects the parts of a machine config.
type talosPatch struct {
	// custom is true if Talos has the document CRICustomizationConfig (since 1.14), and deprecates the file that the document
	// replaces.
	custom         bool
	modules        []string
	parameters     map[string][]string
	rules, sysctls []string
	containerd     []string
	names          []string // of files
	contents       map[string][]string
}

// add adds to the patch what the file sets on other systems. It returns false if a machine config can't express it.
func (t *talosPatch) add(f state.File) bool {
	lines := settingLines(string(f.Content))
	switch {
	case f.Target != "":
		return false
	case strings.HasPrefix(f.Path, "etc/modules-load.d/"):
		t.load(lines...)
	case path.Dir(f.Path) == kernelargs.ModprobeSite:
		t.options(lines)
	case strings.HasPrefix(f.Path, "etc/udev/rules.d/"):
		t.rules = append(t.rules, lines...)
	case strings.HasPrefix(f.Path, "etc/sysctl.d/"):
		t.sysctls = append(t.sysctls, lines...)
	case f.Part == "containerd" && path.Base(path.Dir(f.Path)) == "conf.d":
		// Talos merges the parts of its configuration, which state the version themselves.
		lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "version = ") })
		t.containerd = append(t.containerd, lines...)
	case f.Part == "containerd" && path.Base(f.Path) == "config.toml": // only to import the drop-in
	case strings.HasPrefix(f.Path, "var/"): // machine.files are created only there
		t.names, t.contents["/"+f.Path] = append(t.names, "/"+f.Path), lines
	default:
		return false
	}
	return true
}

// settingLines returns a file's lines without comments and empty lines.
func settingLines(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \t\n"); line != "" && !strings.HasPrefix(strings.TrimSpace(line), "#") {
			all = append(all, line)
		}
	}
	return all
}

func (t *talosPatch) load(modules ...string) {
	for _, name := range modules {
		if !slices.Contains(t.modules, name) {
			t.modules = append(t.modules, name)
		}
	}
}

// options adds the options of modprobe.d(5). Talos has them only for modules that it loads.
func (t *talosPatch) options(lines []string) {
	for _, line := range lines {
		if words := strings.Fields(line); len(words) > 2 && words[0] == "options" {
			t.load(words[1])
			t.parameters[words[1]] = append(t.parameters[words[1]], words[2:]...)
		}
	}
}

func (t *talosPatch) text(words []string) string {
	var b strings.Builder
	b.WriteString("machine:\n  install:\n    extraKernelArgs: # where GRUB starts the node without grubUseUKICmdline\n" + items(words, "    - %s\n"))
	b.WriteString("  kernel:\n    modules:\n")
	for _, name := range t.modules {
		fmt.Fprintf(&b, "    - name: %s\n", name)
		if parameters := t.parameters[name]; len(parameters) > 0 {
			b.WriteString("      parameters:\n      - " + strings.Join(parameters, "\n      - ") + "\n")
		}
	}
	t.settings(&b)
	t.files(&b)
	if len(t.containerd) > 0 && t.custom {
		b.WriteString("---\napiVersion: v1alpha1\nkind: CRICustomizationConfig\nname: kata-vfio\ncontent: |\n" + indented("  ", t.containerd))
	}
	return b.String()
}

func (t *talosPatch) settings(b *strings.Builder) {
	if len(t.sysctls) > 0 {
		b.WriteString("  sysctls:\n")
	}
	for _, line := range t.sysctls {
		name, value, _ := strings.Cut(line, "=")
		fmt.Fprintf(b, "    %s: %q\n", strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if len(t.rules) > 0 {
		b.WriteString("  udev:\n    rules:\n")
	}
	for _, line := range t.rules {
		fmt.Fprintf(b, "    - '%s'\n", strings.ReplaceAll(line, "'", "''"))
	}
}

func (t *talosPatch) files(b *strings.Builder) {
	part := len(t.containerd) > 0 && !t.custom
	if part || len(t.names) > 0 {
		b.WriteString("  files:\n")
	}
	if part {
		b.WriteString("  - path: /etc/cri/conf.d/20-customization.part # add to yours if you have one\n    op: create\n    permissions: 0o644\n    content: |\n" + indented("      ", t.containerd))
	}
	for _, name := range t.names {
		fmt.Fprintf(b, "  - path: %s\n    op: create\n    permissions: 0o644\n    content: |\n%s", name, indented("      ", t.contents[name]))
	}
}

func indented(by string, lines []string) string {
	return by + strings.Join(lines, "\n"+by) + "\n"
}

// Adapt replaces the fixes of problems that the system solves in another way than most.
func (p *Platform) Adapt(problems []state.Problem) {
	if p.Loader.Kind != Talos {
		return
	}
	fixes := talosFixes()
	for i := range problems {
		if fix, ok := fixes[problems[i].Code]; ok {
			problems[i].Fix = fix
		}
	}
}

// talosFix is the fix of missing kernel arguments.
func talosFix([]string) string {
	return "apply the schematic and the machine config that `kata-vfio-bootstrap plan` prints (with -o json: .talos), and upgrade to the schematic's image, which reboots the node"
}

// talosFixes are the fixes of problems that other systems solve in another way.
func talosFixes() map[rule.Code]string {
	return map[rule.Code]string{
		rule.KataNotInstalled: "add a system extension of your own to the schematic, with Kata 4 below /usr/local: bin/containerd-shim-kata-v2, and Kata's configurations in share/kata-containers. " +
			"Sidero's kata-containers has Kata 3 (3.32 for Talos 1.14)",
		rule.NoSystemd:      "nothing: the plugin creates it when it starts. Before that, no pod with claims starts, and the handler passes no annotations to Kata",
		rule.ServiceUnknown: "nothing on Talos 1.14 and newer, which restart containerd when its configuration changes. Reboot an older one",
		rule.VersionUnknown: "use Talos 1.13 or newer, which have containerd 2.2 or newer (`kubectl get nodes -o wide` shows it)",
	}
}
