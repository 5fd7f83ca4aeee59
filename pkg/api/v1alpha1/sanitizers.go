package v1alpha1

import (
	"encoding/json"
	"slices"
	"strings"
)

// SanitizeWhen says when a device must pass its sanitizing stage.
type SanitizeWhen string

// When devices are sanitized.
const (
	// SanitizeRelease sanitizes a device after each claim that had it, before another claim gets it.
	SanitizeRelease SanitizeWhen = "Release"
	// SanitizeBeforeClaim also sanitizes a device that no stage has sanitized since the node started.
	SanitizeBeforeClaim SanitizeWhen = "BeforeClaim"
)

// FirmwarePolicy says what a change of a device's firmware measurements means.
type FirmwarePolicy string

// Firmware policies.
const (
	// FirmwareRecord keeps the first measurements, and records changes.
	FirmwareRecord FirmwarePolicy = "Record"
	// FirmwareRequire quarantines a device whose measurements changed, until an operator accepts them.
	FirmwareRequire FirmwarePolicy = "Require"
)

// TaintSanitizing is on a device that waits for its sanitizing stage, or is in it. The value is the profile. Only claims
// of stages may tolerate it.
const TaintSanitizing = DriverName + "/sanitizing"

// SanitizersFile is where the plugin's commands look for the document of [Sanitizers], below the node's root.
const SanitizersFile = "etc/kata-vfio/sanitizers.yaml"

// SanitizeRule names the sanitizing stage of a rule's devices.
type SanitizeRule struct {
	// Profile is the name of a [Sanitizer].
	Profile string `json:"profile"`
	// When is Release when empty.
	When SanitizeWhen `json:"when,omitempty"`
}

// Sanitizers are the sanitizing stages of a cluster. Plugin and controller read the same document.
type Sanitizers struct {
	TypeMeta `json:",inline"`
	// Namespace has the claims and pods of stages, and DeviceClass is the class that those claims name. Both belong to
	// kata-vfio: no tenant may use them.
	Namespace   string `json:"namespace"`
	DeviceClass string `json:"deviceClass"`
	// Profiles have unique names.
	Profiles []Sanitizer `json:"profiles"`
}

// Sanitizer is one profile: the container that wipes and measures a device in a VM of its own.
type Sanitizer struct {
	// Name is what [SanitizeRule.Profile] says, a DNS label.
	Name string `json:"name"`
	// Image is a reference by digest: "registry.example/sanitizers@sha256:...". A stage that ran another image counts as failed.
	Image   string   `json:"image"`
	Command []string `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	// RuntimeClass is that of the stage's pod. Default: "kata-gpu".
	RuntimeClass string `json:"runtimeClass,omitempty"`
	// Resources are the container's, as in a pod.
	Resources json.RawMessage `json:"resources,omitempty"`
	// Privileged gives the container the devices and the sysfs of its VM. It has nothing of the node.
	Privileged bool `json:"privileged,omitempty"`
	// TimeoutSeconds bounds a stage, from the pod's start on. Default: 1800.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
	// MaxParallel bounds the stages of this profile that run at a time in the cluster. Default: 10.
	MaxParallel int `json:"maxParallel,omitempty"`
	// Firmware is Record when empty.
	Firmware FirmwarePolicy `json:"firmware,omitempty"`
}

// Defaults of a [Sanitizer].
const (
	DefaultSanitizeTimeoutSeconds = 30 * 60
	DefaultSanitizeMaxParallel    = 10
)

// Limits of a [Sanitizer]. A large drive takes hours.
const (
	longestSanitizeSeconds = 24 * 60 * 60
	mostParallelStages     = 1000
)

// DecodeSanitizers reads the sanitizing stages from YAML or JSON: strictly, with defaults filled in. Its error is an
// [InvalidError] with every problem and its line.
func DecodeSanitizers(text []byte) (*Sanitizers, error) {
	raw, err := YAMLToJSON(text)
	if err != nil {
		return nil, &InvalidError{Kind: KindSanitizers, Problems: []Problem{{Text: err.Error()}}}
	}
	s := &Sanitizers{}
	if err := decode(raw, KindSanitizers, s).err(KindSanitizers); err != nil {
		return nil, withLines(err, text)
	}
	s.Default()
	if err := s.Validate(); err != nil {
		return nil, withLines(err, text)
	}
	return s, nil
}

// Default fills in every field that is not set.
func (s *Sanitizers) Default() {
	s.TypeMeta = TypeMeta{APIVersion: APIVersion, Kind: KindSanitizers}
	for i := range s.Profiles {
		p := &s.Profiles[i]
		if p.RuntimeClass == "" {
			p.RuntimeClass = DefaultHandler
		}
		if p.TimeoutSeconds == 0 {
			p.TimeoutSeconds = DefaultSanitizeTimeoutSeconds
		}
		if p.MaxParallel == 0 {
			p.MaxParallel = DefaultSanitizeMaxParallel
		}
		if p.Firmware == "" {
			p.Firmware = FirmwareRecord
		}
	}
}

// Validate reports everything that is wrong with s as an [InvalidError].
func (s *Sanitizers) Validate() error {
	var p problems
	if !isLabel(s.Namespace) {
		p.add("namespace", "%s is not the name of a namespace; want lower-case letters, digits and \"-\"", show(s.Namespace))
	}
	if !isSubdomain(s.DeviceClass) {
		p.add("deviceClass", "%s is not the name of a DeviceClass; want a DNS subdomain such as sanitize.kata-vfio.dev", show(s.DeviceClass))
	}
	for i := range s.Profiles {
		profile, at := &s.Profiles[i], index("profiles", i)
		profile.check(&p, at)
		same := func(o Sanitizer) bool { return o.Name == profile.Name }
		if first := slices.IndexFunc(s.Profiles, same); first < i {
			p.add(at+".name", "%s is the name of %s too; no two profiles may have one name", show(profile.Name), index("profiles", first))
		}
	}
	return p.err(KindSanitizers)
}

// Profile returns the profile of a name. It works on nil, which has none.
func (s *Sanitizers) Profile(name string) (Sanitizer, bool) {
	if s == nil {
		return Sanitizer{}, false
	}
	i := slices.IndexFunc(s.Profiles, func(p Sanitizer) bool { return p.Name == name })
	if i < 0 {
		return Sanitizer{}, false
	}
	return s.Profiles[i], true
}

// check notes what is wrong with the profile at path.
func (s *Sanitizer) check(p *problems, path string) {
	if !isLabel(s.Name) {
		p.add(path+".name", "%s is not a name; want lower-case letters, digits and \"-\"", show(s.Name))
	}
	if s.Digest() == "" {
		p.add(path+".image", "%s has no digest; want a reference such as registry.example/sanitizers@sha256:<64 hexadecimal digits>, so that a moved tag can't change what wipes devices", show(s.Image))
	}
	if !isSubdomain(s.RuntimeClass) {
		p.add(path+".runtimeClass", "%s is not the name of a RuntimeClass", show(s.RuntimeClass))
	}
	if s.TimeoutSeconds < 1 || s.TimeoutSeconds > longestSanitizeSeconds {
		p.add(path+".timeoutSeconds", "%d is out of range; want 1 to %d", s.TimeoutSeconds, longestSanitizeSeconds)
	}
	if s.MaxParallel < 1 || s.MaxParallel > mostParallelStages {
		p.add(path+".maxParallel", "%d is out of range; want 1 to %d", s.MaxParallel, mostParallelStages)
	}
	among(p, path+".firmware", s.Firmware, FirmwareRecord, FirmwareRequire)
}

// Digest returns the digest in the image's reference, "sha256:..."; empty if it has none.
func (s *Sanitizer) Digest() string {
	name, digest, _ := strings.Cut(s.Image, "@")
	hex, isSHA := strings.CutPrefix(digest, "sha256:")
	if name == "" || !isSHA || len(hex) != 64 || !consists(hex, "0123456789abcdef") {
		return ""
	}
	return digest
}

// check adds the problems of the stage at path, which is that of a device rule.
func (r *SanitizeRule) check(p *problems, path string, of *DeviceRule) {
	if of.Exclude {
		p.add(path, "says nothing where exclude is true; remove one of the two")
	}
	// The plugin does not see what containers of the other driver leave in a GPU, and would call it sanitized.
	if of.SharedWith != "" {
		p.add(path, "can't be combined with sharedWith: a container's data would not be wiped; remove one of the two")
	}
	if !isLabel(r.Profile) {
		p.add(path+".profile", "%s is not the name of a sanitizer profile; want lower-case letters, digits and \"-\"", show(r.Profile))
	}
	among(p, path+".when", r.When, SanitizeRelease, SanitizeBeforeClaim)
}

// isSubdomain reports whether text is an RFC 1123 DNS subdomain.
func isSubdomain(text string) bool {
	return len(text) <= 253 && !slices.ContainsFunc(strings.Split(text, "."), func(part string) bool { return !isLabel(part) })
}
