// Package claim turns an allocated ResourceClaim into a Request: the devices that kata-vfio manages, their parameters,
// and where each parameter comes from. It decides nothing about the node.
package claim

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kata-vfio/kata-vfio/pkg/api/v1alpha1"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// Request has the devices that one claim requests from this node's plugin.
type Request struct {
	// UID identifies the claim. A name can be used again with another UID.
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Pods are the consumers that status.reservedFor names.
	Pods []Pod `json:"pods,omitempty"`
	// Tenant is the ID of the namespace's tenant, which the gate looks up if the node has exclusive domains. A claim does not
	// contain it.
	Tenant string `json:"tenant,omitempty"`
	// NodeSelector selects the nodes for which the claim is allocated; nil means any node.
	NodeSelector *corev1.NodeSelector `json:"nodeSelector,omitempty"`
	// Devices are the functions of the allocation results for our driver, in the claim's order. The two functions of a
	// pair are consecutive, the GPU first.
	Devices []Device `json:"devices"`
}

// Pod is a consumer of the claim.
type Pod struct {
	UID  string `json:"uid"`
	Name string `json:"name"`
}

// Device is one allocated function with its final parameters.
type Device struct {
	// Request is the claim's request name, "request/subrequest" included.
	Request string `json:"request"`
	// Class is the DeviceClass that the request names; empty if the claim's spec
	// has no such request.
	Class string `json:"class,omitempty"`
	// ClassParameters are our driver's parameters that the allocation copied from the DeviceClass, unchanged and in its
	// order.
	ClassParameters []json.RawMessage `json:"-"`
	Pool            string            `json:"pool"`
	// Name is the function's device name, which contains Address.
	Name    string      `json:"name"`
	Address pci.Address `json:"address"`
	// Pair is the pair's name in the ResourceSlice; empty for a function that was allocated by itself.
	Pair string `json:"pair,omitempty"`
	// AdminAccess marks a device that must not be taken or changed.
	AdminAccess bool `json:"adminAccess,omitempty"`
	// VFIO is complete: every field has its default or its configured value.
	VFIO v1alpha1.VFIOConfig `json:"vfio"`
	// VF is nil if neither class nor claim has parameters for the VF.
	VF *v1alpha1.VFConfig `json:"vf,omitempty"`
	// OwnMaxTxRate is whether the claim sets VF's maxTxRate and its class does not. The value can then only lower the
	// PF's present one.
	OwnMaxTxRate bool `json:"ownMaxTxRate,omitempty"`
	// Origins has the origin of each field, by its path: "vfio.backend" -> "class", "vf.mac" -> "claim".
	Origins map[string]Origin `json:"origins,omitempty"`
}

// NamesOfPod returns the names of a pod's claims, sorted, including claims that were created from templates and for
// extended resources. Claims that do not exist yet are missing.
func NamesOfPod(p *corev1.Pod) []string {
	var names []string
	for _, ref := range p.Spec.ResourceClaims {
		if ref.ResourceClaimName != nil {
			names = append(names, *ref.ResourceClaimName)
		}
	}
	// The name of a claim from a template is generated, and only the status has it.
	for _, st := range p.Status.ResourceClaimStatuses {
		if st.ResourceClaimName != nil {
			names = append(names, *st.ResourceClaimName)
		}
	}
	if st := p.Status.ExtendedResourceClaimStatus; st != nil {
		names = append(names, st.ResourceClaimName)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ErrNotOurs is the error for a claim without a device of our driver.
var ErrNotOurs = errors.New("no device of our driver is allocated")

// ErrNotAllocated says that a claim has no status.allocation. The scheduler writes it when a pod uses the claim.
var ErrNotAllocated = errors.New("status.allocation is missing")

// podGroupError is the error for a claim that is reserved for a PodGroup, not for a pod.
type podGroupError struct {
	// Group is the PodGroup's name, in the claim's namespace.
	Group string
}

func (e *podGroupError) Error() string {
	return fmt.Sprintf("the pods of PodGroup %q share it, and a device goes into the VM of one pod: give each pod a claim of its own "+
		"(resourceClaimTemplateName in the pod's spec.resourceClaims) and recreate the PodGroup without spec.resourceClaims, which can't be changed", e.Group)
}

// Code returns the code for conditions and Events.
func (e *podGroupError) Code() rule.Code { return rule.ReservedForPodGroup }
