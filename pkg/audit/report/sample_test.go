package report_test

import (
	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/pci"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

func at(text string) *pci.Address {
	a, err := pci.ParseAddress(text)
	if err != nil {
		panic(err)
	}
	return &a
}

func located(texts ...string) []pci.Address {
	var addresses []pci.Address
	for _, text := range texts {
		addresses = append(addresses, *at(text))
	}
	return addresses
}

func sampleRule(id, title string, severity rule.Severity) rule.Rule {
	return rule.Rule{
		ID: id, Title: title, Severity: severity,
		Why: "without it a device reaches what is not its own", Fix: "switch it on in the firmware",
		Verify: "lspci -vvv", Sources: []string{"Linux: drivers/pci/pci.c"},
	}
}

func sampleRules() []rule.Rule {
	return []rule.Rule{
		sampleRule("IOM-001", "The node has an IOMMU and uses it", rule.Critical),
		sampleRule("IOM-013", "No device of a tenant is in a group of type identity", rule.Medium),
		sampleRule("ACS-001", "Every port above a device sends requests up to the IOMMU", rule.High),
		sampleRule("ACS-009", "Devices of two tenants are kept apart at the port where their paths meet", rule.Critical),
		sampleRule("VFIO-015", "INTx masking is on", rule.Low),
		sampleRule("RST-001", "Every device can be reset", rule.Critical),
		sampleRule("GPU-005", "No bridge joins GPUs of two tenants", rule.High),
		sampleRule("HOST-015", "The boot is measured", rule.Low),
		sampleRule("RT-025", "A handler's name says what it runs", rule.Critical),
	}
}

// found completes a finding with its rule's texts.
func found(id string, f finding.Finding) finding.Finding {
	for _, r := range sampleRules() {
		if r.ID == id {
			f.ID, f.Title, f.Severity = id, r.Title, r.Severity
			if f.Verify == "" {
				f.Verify = r.Verify
			}
			if f.State != finding.Pass && f.State != finding.NotApplicable && f.Remediation == "" {
				f.Remediation = r.Fix
			}
		}
	}
	if f.Exposure == "" {
		f.Exposure = finding.Unexposed
	}
	return f
}

// few is a report with findings of all states, two of them failures.
func few() []finding.Finding {
	unread := rule.Evidence{Path: "/sys/bus/pci/devices/0000:3a:01.0/config", How: "config", Error: "only 64 bytes", Needs: "CAP_SYS_ADMIN"}
	return []finding.Finding{
		found("ACS-009", finding.Finding{
			State: finding.Fail, Exposure: finding.CrossTenant, Device: at("0000:3b:00.0"),
			Devices: located("0000:3b:00.0", "0000:41:00.0", "0000:41:00.1", "0000:42:00.0", "0000:43:00.0", "0000:44:00.0", "0000:45:00.0"),
			Tenants: []string{"t1", "t2"}, Text: "below 0000:3a:01.0, which does not redirect, it reaches 0000:41:00.0 of t2",
			Remediation: "boot with `pci=config_acs=11111@0000:3a:01.0`, or place one of the two on another switch",
			Verify:      "setpci -s 0000:3a:01.0 ECAP_ACS+6.w",
			Evidence: []rule.Evidence{
				{Path: "/sys/bus/pci/devices/0000:3a:01.0/config", Value: "ACS control 0x0000, capability 0x005f", How: "config"},
			},
		}),
		found("IOM-013", finding.Finding{
			State: finding.Fail, Exposure: finding.Published, Device: at("0000:5e:00.0"), Devices: located("0000:5e:00.0"),
			Text: "group 12 is of type identity", Pending: "fixed on disk, reboot pending",
			Evidence: []rule.Evidence{{Path: "/sys/kernel/iommu_groups/12/type", Value: "identity", How: "read"}},
			Waiver:   &finding.Waiver{Rule: "IOM-013", Scope: "0000:5e:00.0", Until: "2026-10-31", Reason: "firmware (SEC-12)", Author: "alice", Expired: true},
		}),
		found("IOM-001", finding.Finding{
			State: finding.Pass, Text: "2 IOMMU units, 31 groups",
			Evidence: []rule.Evidence{{Path: "/sys/class/iommu", Value: "dmar0 dmar1", How: "list"}},
		}),
		found("ACS-001", finding.Finding{State: finding.Unknown, Device: at("0000:3a:01.0"), Devices: located("0000:3a:01.0"), Text: "its ACS can't be read", Evidence: []rule.Evidence{unread}}),
		found("ACS-001", finding.Finding{State: finding.Unknown, Device: at("0000:3a:02.0"), Devices: located("0000:3a:02.0"), Text: "its ACS can't be read", Evidence: []rule.Evidence{unread}}),
		found("HOST-015", finding.Finding{State: finding.Unknown, Text: "there is no event log"}),
		found("VFIO-015", finding.Finding{State: finding.NotApplicable, Text: "vfio_pci is not loaded"}),
		found("RT-025", finding.Finding{State: finding.Error, Object: "handler kata-qemu", Text: "the configuration is no TOML"}),
		found("GPU-005", finding.Finding{State: finding.Manual, Text: "no file says which GPUs a bridge joins: look into the chassis"}),
		found("RST-001", finding.Finding{
			State: finding.Waived, Exposure: finding.Allocated, Device: at("0000:41:00.0"), Devices: located("0000:41:00.0"), Tenants: []string{"t2"}, Text: "it has no reset",
			Waiver: &finding.Waiver{Rule: "RST-001", Scope: "0000:41:00.0", Until: "2027-03-31", Reason: "never given to another tenant", Author: "bob"},
		}),
	}
}

// many adds 38 failures: of one rule on many ports, and some of each severity.
func many() []finding.Finding {
	findings := few()
	for i := range 32 {
		a := pci.Address{Bus: 0x60, Device: uint8(i)}
		findings = append(findings, found("ACS-001", finding.Finding{
			State: finding.Fail, Exposure: finding.Allocated, Device: &a, Devices: []pci.Address{a}, Tenants: []string{"t1"},
			Text: "source validation and redirection are off, so that what is below it reaches its neighbors without the IOMMU in between",
		}))
	}
	for _, id := range []string{"IOM-001", "VFIO-015", "RST-001", "GPU-005", "HOST-015", "RT-025"} {
		findings = append(findings, found(id, finding.Finding{State: finding.Fail, Object: "object of " + id, Text: "it is not so"}))
	}
	return findings
}

// document is a report of findings on a fixed node.
func document(findings []finding.Finding) *report.Document {
	r := &finding.Report{
		Subject: finding.Subject{
			Kind: "node", Name: "gpu-07", Root: "/", BootID: "6f1f0e3c-9d6a-4f3e-8a51-1d9e9a1f2b3c", Kernel: "6.12.0",
			Time: "2026-11-22T09:00:00Z", Version: "v1.2.3",
		},
		Profile: finding.MultiTenant, Findings: findings,
	}
	r.Summary.Devices, r.Summary.Claims = 24, 3
	r.Finish()
	return &report.Document{Report: r, Rules: sampleRules()}
}
