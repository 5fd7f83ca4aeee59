package rule

import (
	"bytes"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed texts.yaml
var textsYAML []byte

// Text explains a code to people.
type Text struct {
	Code Code `json:"code" yaml:"code"`
	// Title is the meaning of the code, as a sentence without its full stop.
	Title string `json:"title" yaml:"title"`
	// SeenIn are the places where users see the code.
	SeenIn []Place `json:"seenIn" yaml:"seenIn"`
	// Taint is the key of the taint that only this code sets: "kata-vfio.dev/dead". The value of other taints is the code.
	Taint string `json:"taint,omitempty" yaml:"taint"`
	// Why is the consequence, or the reason of the refusal.
	Why string `json:"why,omitempty" yaml:"why"`
	// Fix is the solution; empty if there is nothing to do.
	Fix string `json:"fix,omitempty" yaml:"fix"`
	// Who are the people that can apply Fix. It is empty if Fix is empty.
	Who []Role `json:"who,omitempty" yaml:"who"`
	// Severity is how severe the fault is for the isolation of tenants and the work of a node, or [Refusal].
	Severity Severity `json:"severity" yaml:"severity"`
	// Isolation says that package isolation judges the code. [Code.Severity], [Code.Fix] and [Code.Checks] know it.
	Isolation bool `json:"-" yaml:"isolation"`
	// Enforced are the points that refuse because of the code; empty if it only informs.
	Enforced []EnforcementPoint `json:"enforced,omitempty" yaml:"enforced"`
	// Checks are the IDs of the audit's checks that look for the same fault.
	Checks []string `json:"checks,omitempty" yaml:"checks"`
	// Runbook is the heading of the runbook's section: "Device is quarantined".
	Runbook string `json:"runbook,omitempty" yaml:"runbook"`
}

// Place is a place where users see a code.
type Place string

// Places.
const (
	InCondition Place = "condition" // the reason of a condition in a claim's status
	InEvent     Place = "event"     // the reason of an Event
	InTaint     Place = "taint"     // the value of a device's taint in a ResourceSlice
	InCommand   Place = "command"   // the output of a command
	InLedger    Place = "ledger"    // an event of the ledger
	InRequest   Place = "request"   // the API server's answer to a request
)

// Places returns all places.
func Places() []Place { return []Place{InCondition, InEvent, InTaint, InCommand, InLedger, InRequest} }

// Role is a person who can do something about a verdict.
type Role string

// Roles.
const (
	Tenant   Role = "tenant"   // the authors of pods and claims
	Platform Role = "platform" // the operators of the nodes and the cluster
	Vendor   Role = "vendor"   // the maker of a device, its firmware or its driver
)

// Roles returns all roles.
func Roles() []Role { return []Role{Tenant, Platform, Vendor} }

// EnforcementPoint is a point in the life of a pod at which kata-vfio refuses it.
type EnforcementPoint string

// Enforcement points, in the order in which a pod meets them.
const (
	AtAdmission EnforcementPoint = "admission" // the API server does not store the object
	AtPublish   EnforcementPoint = "publish"   // the device is tainted, so that the scheduler does not allocate it
	AtPrepare   EnforcementPoint = "prepare"   // the kubelet's call fails, before the pod's VM starts
	AtSandbox   EnforcementPoint = "sandbox"   // the pod's VM is ended
	AtContainer EnforcementPoint = "container" // the container is not created
	AtRelease   EnforcementPoint = "release"   // the claim is not released yet
)

// EnforcementPoints returns all enforcement points, in the order in which a pod meets them.
func EnforcementPoints() []EnforcementPoint {
	return []EnforcementPoint{AtAdmission, AtPublish, AtPrepare, AtSandbox, AtContainer, AtRelease}
}

// Texts returns the texts of all codes, by code. The error is a defect of the build.
func Texts() ([]Text, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(textsYAML))
	decoder.KnownFields(true)
	var texts []Text
	if err := decoder.Decode(&texts); err != nil {
		return nil, fmt.Errorf("read the texts of codes: %w", err)
	}
	slices.SortFunc(texts, func(a, b Text) int { return strings.Compare(string(a.Code), string(b.Code)) })
	return texts, nil
}

// Find returns the text of a code, in upper or lower case, or of the taint with a key. The key may be without the driver's
// name: "link-lost".
func Find(texts []Text, word string) (*Text, bool) {
	for i := range texts {
		_, key, _ := strings.Cut(texts[i].Taint, "/")
		if strings.EqualFold(string(texts[i].Code), word) || word != "" && (word == texts[i].Taint || word == key) {
			return &texts[i], true
		}
	}
	return nil, false
}
