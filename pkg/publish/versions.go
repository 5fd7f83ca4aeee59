package publish

import (
	"strings"

	resourceapi "k8s.io/api/resource/v1"

	"golang.org/x/mod/semver"

	"github.com/kata-vfio/kata-vfio/pkg/device"
)

// Attributes of GPUs and pairs whose value is a version by Semantic Versioning 2.0.0, which CEL can compare:
// .?kataVersion.orValue(semver("0.0.0")).compareTo(semver("4.1.0")) >= 0. VFs don't have them: a node has many VFs, and the node's GPUs, or
// the absence of GPUs, tell the same.
const (
	// AttrPluginVersion is the version of the plugin that publishes the device.
	AttrPluginVersion resourceapi.QualifiedName = "pluginVersion"
	// AttrKataVersion is the version of Kata on the node, as the last `kata-vfio-bootstrap verify --record` or `run` found it. It is absent
	// if neither ran since bootstrap's last change, or if no version was found.
	AttrKataVersion resourceapi.QualifiedName = "kataVersion"
)

// Versions are those of the node's software, in any form; empty if not known.
type Versions struct{ Plugin, Kata string }

// addTo adds the versions to a GPU or a pair, as long as the device has room for more attributes: the API server refuses a whole slice if
// one of its devices has too many. An upgrade of the software changes these attributes, but nothing that an allocation refers to.
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

// semantic returns a version in the form that the API server accepts: "v4.1" becomes 4.1.0. It returns false for "(devel)", and for a
// version that is too long. It cuts the build metadata after a plus sign, which does not affect the order of versions.
func semantic(text string) (string, bool) {
	version := strings.TrimPrefix(semver.Canonical("v"+strings.TrimPrefix(text, "v")), "v")
	return version, version != "" && len(version) <= resourceapi.DeviceAttributeMaxValueLength
}
