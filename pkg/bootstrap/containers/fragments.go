package containers

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
	"github.com/kata-vfio/kata-vfio/pkg/cdi"
	"github.com/kata-vfio/kata-vfio/pkg/facts"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
	"github.com/kata-vfio/kata-vfio/runtimeclass"
)

// fragment returns a shipped file with the paths of the Kata installation. The shipped files have those of Kata's own
// archive, below /opt/kata.
func fragment(name string, k *kata) (string, error) {
	text, err := runtimeclass.Files.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read the fragment %s: %w", name, err)
	}
	unpacked := unpackedKata(k.flavour)
	return strings.NewReplacer(unpacked.shim, k.shim, unpacked.own+"/", k.own+"/").Replace(string(text)), nil
}

// flavoured returns the name of a fragment that exists for each of Kata's runtimes.
func flavoured(name, ext string, flavour blueprint.Flavor) string {
	if flavour == blueprint.FlavorRust {
		return name + "-runtime-rs" + ext
	}
	return name + ext
}

// withCDIDirs adds the base's CDI directories to a fragment, because the fragment's list replaces the base's.
func withCDIDirs(text string, base []string) string {
	all := slices.Clone(base)
	for _, dir := range cdi.Dirs() {
		if !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	// The text is edited, and not a parsed table, so that the file keeps its comments for the administrator.
	return strings.Replace(text, "cdi_spec_dirs = "+tomlList(cdi.Dirs()), "cdi_spec_dirs = "+tomlList(all), 1)
}

// shimCleanup is the fragments' time limit, in seconds, for the clean-up after a shim was killed. The fragments give
// the reason.
const shimCleanup = 60

// withShimCleanup keeps the node's own limit for that clean-up if it is longer.
func withShimCleanup(text string, own facts.TableSetting) string {
	if seconds, ok := own.Seconds(); !ok || seconds <= shimCleanup {
		return text
	}
	setting := func(value string) string { return fmt.Sprintf("%q = %q", facts.ShimCleanup, value) }
	return strings.Replace(text, setting(fmt.Sprintf("%ds", shimCleanup)), setting(own.Text()), 1)
}

// virtiofsdArgs is the fragments' setting of virtiofsd's arguments.
var virtiofsdArgs = regexp.MustCompile(`(?m)^virtio_fs_extra_args = .*$`)

// withVirtiofsdArgs keeps the base's arguments of virtiofsd, because the fragment's list replaces the base's, and takes
// CAP_MKNOD away.
func withVirtiofsdArgs(text string, base []string) string {
	setting := "virtio_fs_extra_args = " + tomlList(facts.WithoutMknod(base))
	return virtiofsdArgs.ReplaceAllLiteralString(text, setting)
}

// withoutBlockDevices enables the setting disable_block_device_use, which the fragment for both bases leaves to its
// installer.
func withoutBlockDevices(text string) string {
	return strings.Replace(text, "\n# disable_block_device_use = ", "\ndisable_block_device_use = ", 1)
}

func tomlList(items []string) string {
	var quoted []string
	for _, item := range items {
		quoted = append(quoted, fmt.Sprintf("%q", item))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// refuseDifferences refuses files if the runtime does not merge them into the earlier settings with bootstrap's on top.
// last is the file that is read last. Each file is named once.
func (w *wants) refuseDifferences(want, got facts.Table, last string) {
	wanted, found := want.Settings(), got.Settings()
	all := maps.Clone(wanted)
	maps.Copy(all, found)
	named := map[string]bool{}
	for _, name := range sortedKeys(all) {
		is, ours := found[name], wanted[name]
		if is.Is(ours) || notCompared(name) {
			continue
		}
		// A setting that is gone has no file. Only a file that is read later can have replaced the table that had it.
		file := cmp.Or(is.File, last)
		if !named[file] {
			w.refuse(rule.SettingOverridden, file, fmt.Sprintf("%s is read after bootstrap's file and sets %s (%s), but %s is required.", file, is.Fact().Value, name, ours.Fact().Value),
				"Remove the setting from "+file+", or rename that file so that it is read before bootstrap's.")
		}
		named[file] = true
	}
}

// notCompared reports whether a key belongs to a single file, or to the older CRI plugin, whose sections were migrated
// to the newer one's.
func notCompared(name string) bool {
	return name == "imports" || name == "version" || strings.HasPrefix(name, "plugins."+facts.CRIBefore+".")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// checkCgroups compares containerd's cgroup driver with the kubelet's. runc does not use systemd by default
// (internal/cri/config DefaultRuntimeConfig).
func (c *containerd) checkCgroups(all facts.Table) {
	cri := all.Sub("plugins", facts.CRIRuntime, "containerd")
	name := cmp.Or(cri.Setting("", "default_runtime_name").Text(), "runc")
	s := cri.Sub("runtimes", name, "options").Setting(c.at.main, "SystemdCgroup")
	driver := "cgroupfs"
	if s.On() {
		driver = "systemd"
	}
	c.wants.compareCgroups(c.node.kubelet(), driver, s.File, "SystemdCgroup in the options of the handler "+name)
}

// compareCgroups warns if the kubelet and the runtime have different cgroup drivers. A kubelet without a setting uses
// the runtime's.
func (w *wants) compareCgroups(k *facts.Kubelet, driver, file, setting string) {
	w.fact("cgroup driver", driver, file)
	if k.Settings.CgroupDriver == "" || k.Settings.CgroupDriver == driver {
		return
	}
	w.warn(rule.CgroupDriverMismatch, file, fmt.Sprintf("The kubelet uses the cgroup driver %s (%s), but the container runtime uses %s (%s).", k.Settings.CgroupDriver, k.CgroupFile, driver, file),
		fmt.Sprintf("Change %s, or the kubelet's cgroupDriver.", setting))
}
