package host_test

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/host"
)

// tree is a node's files, of which some may not be read.
type files map[string]string

const denied = "denied"

func (t files) ReadAtMost(name string, limit int64) ([]byte, error) {
	content, ok := t[name]
	switch {
	case !ok:
		return nil, fs.ErrNotExist
	case content == denied:
		return nil, &fs.PathError{Op: "open", Path: "/" + name, Err: fs.ErrPermission}
	}
	return []byte(content[:min(int64(len(content)), limit)]), nil
}

func (t files) ReadDir(name string) ([]string, error) {
	if t[name] == denied {
		return nil, &fs.PathError{Op: "open", Path: "/" + name, Err: fs.ErrPermission}
	}
	var names []string
	for _, file := range slices.Sorted(maps.Keys(t)) {
		rest, ok := strings.CutPrefix(file, name+"/")
		first, _, _ := strings.Cut(rest, "/")
		if ok && !slices.Contains(names, first) {
			names = append(names, first)
		}
	}
	return names, nil
}

func TestNewestKernelIsTheOneWithTheHighestNumbers(t *testing.T) {
	for _, c := range []struct {
		releases []string
		want     string
	}{
		{[]string{"6.9.1-1", "6.12.9-1"}, "6.12.9-1"},
		{[]string{"6.12.9-1-amd64", "6.12.10-1-amd64"}, "6.12.10-1-amd64"},
		{[]string{"5.14.0-427.el9.x86_64", "5.14.0-70.el9.x86_64"}, "5.14.0-427.el9.x86_64"},
		{[]string{"6.12.0-rc1", "6.12.0-1"}, "6.12.0-1"},
		{[]string{"6.12.0"}, "6.12.0"},
	} {
		node := files{}
		for _, release := range c.releases {
			node[path.Join("usr/lib/modules", release, "modules.dep")] = "kernel/vfio-pci.ko:\n"
		}
		if got := host.Detect(node, false).Kernel; got != c.want {
			t.Errorf("of %v: %s", c.releases, got)
		}
	}
}

// A table that may not be read says nothing: not that it offers nothing.
func TestPlatformReportsUnreadableFiles(t *testing.T) {
	for _, name := range []string{"sys/firmware/acpi/tables/DMAR", "boot/loader/entries", "boot/grub2/grub.cfg"} {
		p := host.Detect(files{name: denied, "sys/firmware/acpi/tables/DSDT": "", "etc/default/grub": "", "usr/sbin/grub2-mkconfig": ""}, true)
		if problems := p.Denied(); len(problems) != 1 || !problems[0].Fatal || !strings.Contains(problems[0].Text, "/"+name) || problems[0].Fix != "run bootstrap as root" {
			t.Errorf("%s: %+v", name, problems)
		}
		if p.Firmware.DMAR != nil || strings.HasSuffix(name, "DMAR") == p.Firmware.Readable {
			t.Errorf("%s: firmware %+v", name, p.Firmware)
		}
	}
	if problems := host.Detect(files{"etc/shadow": denied}, true).Denied(); len(problems) > 0 {
		t.Errorf("of nothing that matters: %+v", problems)
	}
	if problems := host.Detect(files{"boot/loader/entries": denied}, false).Denied(); len(problems) > 0 {
		t.Errorf("of an image: %+v", problems)
	}
}

// All modules of the kernel are known, and which of them it has loaded.
func TestModulesAreThoseOfTheKernel(t *testing.T) {
	node := files{
		"proc/sys/kernel/osrelease":              "6.12.9\n",
		"usr/lib/modules/6.12.9/modules.dep":     "kernel/net/sched/sch_ingress.ko.xz:\nkernel/drivers/vfio/pci/vfio-pci.ko: kernel/drivers/vfio/vfio.ko\n",
		"usr/lib/modules/6.12.9/modules.builtin": "kernel/net/xfrm/xfrm_user.ko\n",
		"sys/module/vfio_pci/refcnt":             "0\n", "sys/module/kernel/x": "",
	}
	for live, loaded := range map[bool]bool{true: true, false: false} {
		want := map[string]host.Module{"sch_ingress": {Loadable: true}, "vfio_pci": {Loadable: true, Loaded: loaded}, "xfrm_user": {BuiltIn: true}}
		if got := host.Detect(node, live).Modules; !maps.Equal(got, want) {
			t.Errorf("live %t: %+v, want %+v", live, got, want)
		}
	}
}
