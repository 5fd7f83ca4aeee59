package host

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/state"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"
)

// vfWriter is a kind of file by which other programs set the number of VFs of a PF at boot.
type vfWriter struct {
	dirs   []string
	suffix string
	// files are further files, by their paths.
	files []string
	// setting is a part of every line that sets the number.
	setting string
}

// vfWriters returns the files of the programs that may set the number: udev, systemd (link files, tmpfiles, services),
// sysfsutils, netplan, NetworkManager, ifupdown, rc.local and options of drivers.
func vfWriters() []vfWriter {
	const attribute = "sriov_numvfs"
	return []vfWriter{
		{dirs: []string{"etc/udev/rules.d", "run/udev/rules.d", "usr/local/lib/udev/rules.d", "usr/lib/udev/rules.d"}, suffix: ".rules", setting: attribute},
		{dirs: []string{"etc/systemd/network", "run/systemd/network", "usr/lib/systemd/network"}, suffix: ".link", setting: "SR-IOVVirtualFunctions="},
		{dirs: []string{"etc/tmpfiles.d", "run/tmpfiles.d", "usr/lib/tmpfiles.d", "etc/sysfs.d"}, suffix: ".conf", files: []string{"etc/sysfs.conf"}, setting: attribute},
		{dirs: []string{"etc/systemd/system"}, suffix: ".service", setting: attribute},
		{dirs: []string{"etc/netplan"}, suffix: ".yaml", setting: "virtual-function-count:"},
		{dirs: []string{"etc/NetworkManager/system-connections"}, suffix: ".nmconnection", setting: "total-vfs="},
		{dirs: []string{"etc/network/interfaces.d"}, files: []string{"etc/network/interfaces", "etc/rc.local", "etc/rc.d/rc.local"}, setting: attribute},
		{dirs: []string{kernelargs.ModprobeSite}, suffix: ".conf", setting: "max_vfs="},
	}
}

// otherWriters reports files of other programs that may set the number of VFs, because the last one to write it wins. A
// line that names only other functions does not count. A line with an interface name always counts, because the name may
// be that of the PF after the boot.
func (n *node) otherWriters(pfs []physicalFunction) {
	for _, w := range vfWriters() {
		files := slices.Clone(w.files)
		for _, dir := range w.dirs {
			names, _ := n.tree.ReadDir(dir) // usually it does not exist
			for _, name := range names {
				if strings.HasSuffix(name, w.suffix) {
					files = append(files, path.Join(dir, name))
				}
			}
		}
		for _, file := range files {
			if file != rulesFile {
				n.writesIn(file, w.setting, pfs)
			}
		}
	}
}

var address = regexp.MustCompile(`[0-9a-f]{4,}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]`)

func (n *node) writesIn(file, setting string, pfs []physicalFunction) {
	text, _ := n.text(vfPart, file)
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		named := address.FindAllString(strings.ToLower(line), -1)
		others := len(named) > 0 && !slices.ContainsFunc(pfs, func(pf physicalFunction) bool { return slices.Contains(named, pf.address.String()) })
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";") || !strings.Contains(line, setting) || others {
			continue
		}
		n.problem(state.Problem{
			Part: vfPart, Code: rule.VFCountConflict, Path: file, Text: fmt.Sprintf("/%s line %d also sets a number of VFs, and the last program to do so wins: %s", file, number, line),
			Fix: "remove the line if it is of a PF in virtualFunctions",
		})
	}
}
