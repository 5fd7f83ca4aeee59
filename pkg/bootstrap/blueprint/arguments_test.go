package blueprint_test

import (
	"testing"

	"github.com/kata-vfio/kata-vfio/pkg/bootstrap/blueprint"
)

// TestArgumentsThatAuditFixesNameAreAccepted: what IOM-015, ACS-004 and ACS-009 ask
// for is said in the blueprint; the kernel's other forms, which weaken, are not.
func TestArgumentsThatAuditFixesNameAreAccepted(t *testing.T) {
	const head = "apiVersion: bootstrap.kata-vfio.dev/v1alpha1\nkind: NodeBlueprint\nkernel: {arguments: [\""
	for word, accepted := range map[string]bool{
		"iommu.strict=1":                     true,
		"pci=config_acs=11111@0000:3a:01.0":  true,
		"pci=config_acs=xx111@pci:10b5:8747": true,
		"pci=disable_acs_redir=0000:3a:01.0": false,
		"pci=config_acs=00000@0000:3a:01.0":  false,
		"iommu.passthrough=1":                false,
	} {
		if _, err := blueprint.Parse([]byte(head + word + "\"]}\n")); (err == nil) != accepted {
			t.Errorf("%s: %v", word, err)
		}
	}
}
