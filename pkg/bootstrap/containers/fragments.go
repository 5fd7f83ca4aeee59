package containers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kata-vfio/kata-vfio/pkg/audit/facts/runtimes/config"
	"github.com/kata-vfio/kata-vfio/runtimeclass"
)

// handlerName is the handler that the RuntimeClass names.
const handlerName = "kata-gpu"

// fragment returns a shipped file for the way in which Kata is installed. The files
// are written for its own archive, below /opt/kata.
func fragment(name string, k kata) (string, error) {
	text, err := runtimeclass.Files.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read the fragment %s: %w", name, err)
	}
	unpacked := unpackedKata(k.flavour)
	return strings.NewReplacer(unpacked.shim, k.shim, unpacked.dir, k.dir).Replace(string(text)), nil
}

// flavoured returns the name of a fragment that each of Kata's runtimes has one of.
func flavoured(name, ext string, flavour Flavour) string {
	if flavour == FlavourRust {
		return name + "-runtime-rs" + ext
	}
	return name + ext
}

// cdiDirs are where Kata looks for CDI specs, and nowhere else.
func cdiDirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// withCDIDirs returns a fragment whose list of CDI directories, which replaces the
// base's, has those of the base too.
func withCDIDirs(text string, base []string) string {
	all := slices.Clone(base)
	for _, dir := range cdiDirs() {
		if !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	return strings.Replace(text, "cdi_spec_dirs = "+tomlList(cdiDirs()), "cdi_spec_dirs = "+tomlList(all), 1)
}

// shimCleanup is how many seconds our fragments give the clean-up after a shim that was
// killed; they say why.
const shimCleanup = 60

// withShimCleanup returns a fragment that keeps the node's own limit for that clean-up
// where it is longer.
func withShimCleanup(text string, own config.Setting) string {
	if seconds, ok := own.Seconds(); !ok || seconds <= shimCleanup {
		return text
	}
	setting := func(value string) string { return fmt.Sprintf("%q = %q", config.ShimCleanup, value) }
	return strings.Replace(text, setting(fmt.Sprintf("%ds", shimCleanup)), setting(own.Text()), 1)
}

func tomlList(items []string) string {
	var quoted []string
	for _, item := range items {
		quoted = append(quoted, fmt.Sprintf("%q", item))
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// refuseDifferences refuses what a runtime would make of its files where it is
// another thing than what they said before with ours over it. last is the file that
// is read last. Each file is named once.
func (w *wants) refuseDifferences(want, got config.Table, last string) {
	wanted, found := want.Settings(), got.Settings()
	all := maps.Clone(wanted)
	maps.Copy(all, found)
	named := map[string]bool{}
	for _, name := range sortedKeys(all) {
		is, ours := found[name], wanted[name]
		if is.Is(ours) || notCompared(name) {
			continue
		}
		file := cmp.Or(is.File, last)
		if !named[file] {
			w.refuse(file, fmt.Sprintf("%s is read after bootstrap's file and sets %s (%s), but %s is required.", file, is.Fact().Value, name, ours.Fact().Value),
				"Remove the setting from "+file+", or rename that file so that it is read before bootstrap's.")
		}
		named[file] = true
	}
}

// notCompared are keys that belong to one file, and the sections of the older CRI
// plugin, which were taken over into the newer one's.
func notCompared(name string) bool {
	return name == "imports" || name == "version" || strings.HasPrefix(name, "plugins."+config.CRIBefore+".")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// checkCgroups compares containerd's way of making cgroups with the kubelet's. runc's
// default is not to use systemd (internal/cri/config DefaultRuntimeConfig).
func (c *containerd) checkCgroups(all config.Table) {
	cri := all.Sub("plugins", config.CRIRuntime, "containerd")
	name := cmp.Or(cri.Setting("", "default_runtime_name").Text(), "runc")
	s := cri.Sub("runtimes", name, "options").Setting(c.at.main, "SystemdCgroup")
	driver := "cgroupfs"
	if s.On() {
		driver = "systemd"
	}
	c.compareCgroups(c.node.kubelet(), driver, s.File, "SystemdCgroup in the options of the handler "+name)
}

// compareCgroups warns where the kubelet and the runtime create cgroups in different ways. A kubelet without a
// setting asks the runtime.
func (w *wants) compareCgroups(k *kubelet, driver, file, setting string) {
	w.fact("cgroup driver", driver, file)
	if k.CgroupDriver == "" || k.CgroupDriver == driver {
		return
	}
	w.warn(file, fmt.Sprintf("The kubelet uses the cgroup driver %s (%s), but the container runtime uses %s (%s).", k.CgroupDriver, k.cgroupFile, driver, file),
		fmt.Sprintf("Change %s, or the kubelet's cgroupDriver.", setting))
}
