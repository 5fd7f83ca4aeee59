package host

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const isolationPart = "isolation"

// startup is a kind of file from which the node runs commands at its start.
type startup struct {
	dirs     []string
	suffixes []string
	files    []string
	// dropIns is the suffix of directories below dirs whose files add commands to a unit (systemd.unit(5)); empty if there are none.
	dropIns string
}

const (
	serviceSuffix = ".service"
	// dropInsSuffix ends the names of directories with drop-ins of one service, and is the end of service.d, the directory for all services.
	dropInsSuffix = "service.d"
)

// unitDirs are the directories from which systemd reads units (systemd.unit(5)).
func unitDirs() []string {
	return []string{"etc/systemd/system", "run/systemd/system", "usr/local/lib/systemd/system", "usr/lib/systemd/system"}
}

// startups returns all kinds: systemd's services with their drop-ins, udev's rules, cron's tables, tmpfiles.d and rc.local.
func startups() []startup {
	return []startup{
		{dirs: unitDirs(), suffixes: []string{serviceSuffix}, dropIns: dropInsSuffix},
		{dirs: []string{"etc/udev/rules.d", "run/udev/rules.d", "usr/local/lib/udev/rules.d", "usr/lib/udev/rules.d"}, suffixes: []string{".rules"}},
		{dirs: []string{"etc/cron.d", "var/spool/cron", "var/spool/cron/crontabs"}, suffixes: []string{""}, files: []string{"etc/crontab"}},
		{dirs: []string{"etc/tmpfiles.d"}, suffixes: []string{".conf"}, files: []string{"etc/rc.local", "etc/rc.d/rc.local"}},
	}
}

// startedCommands reports commands at the node's start that break the plugin's assumptions: they clear ACS at each boot,
// as guides for NCCL and GPUDirect recommend, set drivers, or disable resets. It follows a command to its script.
func (n *node) startedCommands() {
	wanted := n.wantedUnits()
	seen := map[string]bool{rulesFile: true}
	for _, s := range startups() {
		for _, file := range n.startupFiles(s) {
			if seen[file] {
				continue
			}
			seen[file] = true
			text := n.script(file)
			by := origin{file: file, runs: runsAtStart(file, wanted)}
			n.commandsIn(text, by)
			n.followScripts(text, by, seen)
		}
	}
}

// followScripts checks the scripts that a file runs. It does not follow the scripts that those run.
func (n *node) followScripts(text string, by origin, seen map[string]bool) {
	for _, c := range commandLines(text) {
		for _, found := range scriptPath.FindAllString(c.line, -1) {
			name := strings.TrimPrefix(path.Clean(found), "/")
			// A program that is not a script has no lines to look at.
			if script := n.script(name); !seen[name] && strings.HasPrefix(script, "#!") {
				seen[name] = true
				n.commandsIn(script, origin{file: name, runs: by.runs, started: fmt.Sprintf(", which /%s line %d runs,", by.file, c.number)})
			}
		}
	}
}

// runsAtStart reports whether the commands of a file run at the node's start: those of a service or of its drop-in only if a target wants the
// service. The drop-ins in foo-.service.d and foo@.service.d are for all services whose names begin so.
func runsAtStart(file string, wanted []string) bool {
	dir := path.Base(path.Dir(file))
	service, isDropIn := strings.CutSuffix(dir, "."+dropInsSuffix)
	switch {
	case strings.HasSuffix(file, serviceSuffix):
		return slices.Contains(wanted, path.Base(file))
	case !isDropIn:
		return true
	case strings.HasSuffix(service, "-"), strings.HasSuffix(service, "@"):
		return slices.ContainsFunc(wanted, func(unit string) bool { return strings.HasPrefix(unit, service) })
	}
	return slices.Contains(wanted, service+serviceSuffix)
}

func (n *node) startupFiles(s startup) []string {
	files := slices.Clone(s.files)
	for _, dir := range s.dirs {
		files = append(files, n.filesIn(dir, s.suffixes)...)
		if s.dropIns == "" {
			continue
		}
		names, _ := n.tree.ReadDir(dir)
		for _, name := range names {
			if strings.HasSuffix(name, s.dropIns) {
				files = append(files, n.filesIn(path.Join(dir, name), []string{".conf"})...)
			}
		}
	}
	return files
}

// filesIn returns the files of a directory whose names have one of the suffixes.
func (n *node) filesIn(dir string, suffixes []string) []string {
	var files []string
	names, _ := n.tree.ReadDir(dir) // usually it does not exist
	for _, name := range names {
		if slices.ContainsFunc(suffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) }) {
			files = append(files, path.Join(dir, name))
		}
	}
	return files
}

// wantedUnits returns the units that are enabled: targets' directories link to them.
func (n *node) wantedUnits() []string {
	var all []string
	for _, dir := range unitDirs() {
		names, _ := n.tree.ReadDir(dir)
		for _, name := range names {
			if ext := path.Ext(name); ext == ".wants" || ext == ".requires" {
				units, _ := n.tree.ReadDir(path.Join(dir, name))
				all = append(all, units...)
			}
		}
	}
	return all
}

// maxScript bounds a script that is read, since a command may be a program of any size.
const maxScript = 64 << 10

// script returns the start of a file, or "" if it can't be read. The audit still sees the effect of the file's commands,
// because it reads the registers.
func (n *node) script(name string) string {
	data, err := n.tree.ReadAtMost(n.real(name), maxScript)
	if err != nil {
		return ""
	}
	return string(data)
}

// command is a line that is not a comment.
type command struct {
	number int
	line   string
}

func commandLines(text string) []command {
	var all []command
	number := 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
			all = append(all, command{number, line})
		}
	}
	return all
}

// origin is the place of a command.
type origin struct {
	file string
	// started is a phrase that names the file that runs this one, if any.
	started string
	// runs is true if the command runs at the node's start. It is false for a service that no target wants, which may still run
	// for another reason.
	runs bool
}

var (
	// scriptPath is a path of a program or script, outside the kernel's own file systems.
	scriptPath = regexp.MustCompile(`/(?:usr|opt|etc|root|home|srv|var)/[A-Za-z0-9_./@+-]+`)
	// acsWrite writes the control register of ACS, six bytes into the capability (pci_regs.h PCI_ACS_CTRL, ID 0x0d).
	acsWrite = regexp.MustCompile(`(?i)\bsetpci\b[^;&|]*ECAP(?:_ACS|0{0,3}D)\+(?:0x)?0*6(?:\.[bwl])?=["']?([0-9a-fx]*)(?::([0-9a-fx]+))?`)
	// plainWrite writes 0 at an offset. The offset counts as that of ACS if the file mentions ACS.
	plainWrite = regexp.MustCompile(`(?i)\bsetpci\b.*\s(?:0x)?[0-9a-f]+\.w=["']?(?:0x)?0+\b`)
	// driverWrite sets drivers.
	driverWrite = regexp.MustCompile(`(?:>|\btee\b|^w[+!-]* ).*(?:driver_override|drivers/[^/ ]+/(?:un)?bind\b|drivers_probe)|ATTR\{driver_override\}\s*=[^=]|\bdriverctl\b.*\bset-override\b`)
	// noReset empties the list of reset methods (Documentation/ABI/testing/sysfs-bus-pci), so that the kernel has no way
	// to reset the function. It does not match a command that writes a method into the list, because rule RST-006
	// recommends that.
	noReset = regexp.MustCompile(`ATTR\{reset_method\}\s*=\s*""|\becho\s*(?:""|''|-n)?\s*>\s*\S*reset_method|^w[+!-]*\s+\S*reset_method(?:\s+-)*\s*$`)
)

func (n *node) commandsIn(text string, o origin) {
	// A write to a plain offset does not name the register. The rest of the file may.
	aboutACS := strings.Contains(strings.ToUpper(text), "ACS")
	for _, c := range commandLines(text) {
		switch {
		case clearsACS(c.line), aboutACS && plainWrite.MatchString(c.line):
			n.problem(state.Problem{
				Part: isolationPart, Code: rule.StartupCommandConflict, Fatal: o.runs, Path: o.file,
				Text: fmt.Sprintf("/%s line %d%s switches isolation between devices (ACS) off: %s", o.file, c.number, o.started, c.line),
				Fix:  "disable what runs it, and reboot: VMs of several tenants need ACS",
			})
		// Files of packages don't count: the rules of driverctl match whether the node uses it or not.
		case !ofVendor(o.file) && driverWrite.MatchString(c.line):
			n.problem(state.Problem{
				Part: isolationPart, Code: rule.StartupCommandConflict, Path: o.file,
				Text: fmt.Sprintf("/%s line %d%s also sets drivers of PCI functions: %s", o.file, c.number, o.started, c.line),
				Fix:  "remove it if it is for a function that the node config or vfio.keepOff selects: the plugin sets their drivers itself",
			})
		case noReset.MatchString(c.line):
			n.problem(state.Problem{
				Part: isolationPart, Code: rule.StartupCommandConflict, Path: o.file,
				Text: fmt.Sprintf("/%s line %d%s switches off how PCI functions are reset: %s", o.file, c.number, o.started, c.line),
				Fix:  "remove it if it is for a function that the node config selects: a function that can't be reset is never given to a tenant",
			})
		}
	}
}

// clearsACS reports whether a command clears one of the switches on which isolation depends. A value that a script
// computes is unknown and counts as 0.
func clearsACS(line string) bool {
	for _, m := range acsWrite.FindAllStringSubmatch(line, -1) {
		// setpci writes VALUE:MASK, and the whole register without a mask (setpci(8)).
		value, mask := hexadecimal(m[1]), uint64(0xffff)
		if m[2] != "" {
			mask = hexadecimal(m[2])
		}
		const needed = pci.ACSSourceValidation | pci.ACSRequestRedirect | pci.ACSCompletionRedirect | pci.ACSUpstreamForwarding
		if mask&needed&^value != 0 {
			return true
		}
	}
	return false
}

// hexadecimal returns a number, or 0 if the text is not one.
func hexadecimal(text string) uint64 {
	number, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(text), "0x"), 16, 32)
	if err != nil {
		return 0
	}
	return number
}

// ofVendor reports whether a file comes from a package. Packaged tools such as driverctl set drivers only on the
// administrator's order.
func ofVendor(file string) bool {
	return strings.HasPrefix(file, "usr/") && !strings.HasPrefix(file, "usr/local/")
}
