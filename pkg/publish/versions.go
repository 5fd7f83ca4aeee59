package publish

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"golang.org/x/mod/semver"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// Attributes of GPUs and of pairs with a version, as Semantic Versioning 2.0.0 has it, which CEL compares:
// .?kataVersion.orValue(semver("0.0.0")).compareTo(semver("4.1.0")) >= 0. VFs are without them: a node has many, and its GPUs or
// their absence say it.
const (
	// AttrPluginVersion is the version of the plugin that publishes.
	AttrPluginVersion resourceapi.QualifiedName = "pluginVersion"
	// AttrKataVersion is the node's Kata, by the last `kata-vfio-bootstrap verify --record`, or `run`; absent if there was none since
	// bootstrap's last change, or if it found no version.
	AttrKataVersion resourceapi.QualifiedName = "kataVersion"
)

// Versions are those of the node's software, in any form; empty if not known.
type Versions struct{ Plugin, Kata string }

// addTo adds the versions to a GPU or a pair, as long as the API server has room for them: a slice with one device that has too much
// is refused. An upgrade changes them, and nothing that an allocation refers to.
func (v Versions) addTo(d *resourceapi.Device, e *entry) {
	if e.f == nil || e.f.Type != device.GPU {
		return
	}
	for _, one := range []struct {
		name resourceapi.QualifiedName
		text string
	}{{AttrPluginVersion, v.Plugin}, {AttrKataVersion, v.Kata}} {
		// The API server refuses a version that is not semantic, and the whole slice with it.
		version, ok := semantic(one.text)
		if ok && len(d.Attributes)+len(d.Capacity) < resourceapi.ResourceSliceMaxAttributesAndCapacitiesPerDevice {
			d.Attributes[one.name] = resourceapi.DeviceAttribute{VersionValue: &version}
		}
	}
}

// semantic returns a version as the API server takes it: "v4.1" is 4.1.0; false for "(devel)", or one that is too long. Metadata of the
// build, after a plus, says nothing about the order of versions, and is cut.
func semantic(text string) (string, bool) {
	version := strings.TrimPrefix(semver.Canonical("v"+strings.TrimPrefix(text, "v")), "v")
	return version, version != "" && len(version) <= resourceapi.DeviceAttributeMaxValueLength
}
