package containers

import (
	"fmt"
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
