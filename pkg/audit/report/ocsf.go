package report

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

// writeOCSF writes an OCSF event of the class Compliance Finding for each finding, one
// a line, as collectors take them.
func writeOCSF(w io.Writer, d *Document) error {
	frameworks, err := finding.Frameworks()
	if err != nil {
		return err
	}
	read, err := time.Parse(time.RFC3339, d.Subject.Time)
	if err != nil {
		return fmt.Errorf("write report as OCSF: the time of the audit: %w", err)
	}
	why := map[string]string{}
	for i := range d.Rules {
		why[d.Rules[i].ID] = d.Rules[i].Why
	}
	ids := d.identities()
	for i := range d.Findings {
		f := &d.Findings[i]
		event := newOCSFEvent(d, f, read.UnixMilli())
		event.Finding.UID = ids[i]
		event.Compliance.Desc, event.Compliance.Checks[0].Desc = why[f.ID], why[f.ID]
		event.Compliance.support(finding.ControlsFor(frameworks, f.ID))
		if err := output.JSONLine(w, "finding", event); err != nil {
			return err
		}
	}
	return nil
}

func newOCSFEvent(d *Document, f *finding.Finding, now int64) *ocsfEvent {
	weight, weightName := ocsfSeverity(f.Severity)
	status, statusName := ocsfStatus(f.State)
	e := &ocsfEvent{
		Activity: ocsfCreate, ActivityName: "Create", Category: ocsfFindings, CategoryName: "Findings",
		Class: ocsfComplianceFinding, ClassName: "Compliance Finding",
		// OCSF's base event: type_uid is class_uid * 100 + activity_id.
		Type: ocsfComplianceFinding*100 + ocsfCreate, TypeName: "Compliance Finding: Create", Time: now,
		Severity: weight, SeverityName: weightName, Status: 1, StatusName: "New",
		Message: f.ID + " " + about(f) + ": " + f.Text,
		Metadata: ocsfMetadata{
			Version: ocsfVersion, LogName: "kata-vfio-audit",
			Product: ocsfProduct{Name: "kata-vfio-audit", Vendor: "kata-vfio", Version: d.Subject.Version},
		},
		Finding: ocsfFinding{
			Title: f.Title, Desc: f.Text, LastSeen: now, Tags: ocsfTags(d, f),
			Analytic: ocsfAnalytic{UID: f.ID, Name: f.Title, Type: 1, TypeName: "Rule", Version: d.Subject.Version},
		},
		Compliance: ocsfCompliance{
			Control: f.ID, Status: status, StatusName: statusName, StatusCode: string(f.State), Details: []string{f.Text},
			Checks: []ocsfCheck{{
				UID: f.ID, Name: f.Title, Severity: weight, SeverityName: weightName, Status: status, StatusName: statusName,
			}},
		},
		Device:    ocsfDevice{Hostname: d.Subject.Label(), Type: 1, TypeName: "Server", BootUID: d.Subject.BootID},
		Resources: ocsfResources(d, f),
	}
	if f.State == finding.Pass || f.State == finding.NotApplicable {
		// A passed check must not raise an alert.
		e.Severity, e.SeverityName = ocsfSeverity(rule.Info)
	}
	if f.Pending != "" {
		e.Compliance.Details = append(e.Compliance.Details, f.Pending)
	}
	e.complete(f)
	return e
}

// complete fills in the attributes that only some findings have.
func (e *ocsfEvent) complete(f *finding.Finding) {
	if f.State == finding.Waived && f.Waiver != nil {
		// The event's status says that the finding was suppressed. The status of its compliance object is still Fail.
		e.Status, e.StatusName, e.Comment = 3, "Suppressed", waiverWords(f.Waiver)
	}
	if f.Remediation != "" {
		e.Remediation = &ocsfRemediation{Desc: f.Remediation}
		if f.Verify != "" {
			e.Remediation.Desc += "; see it by hand: " + f.Verify
		}
	}
	for _, seen := range f.Evidence {
		e.Evidences = append(e.Evidences, ocsfEvidence{Data: seen})
		e.Finding.Sources = append(e.Finding.Sources, seen.Path)
	}
}

func (c *ocsfCompliance) support(supports []finding.Support) {
	for _, s := range supports {
		c.Standards = append(c.Standards, s.Name)
		c.Requirements = append(c.Requirements, s.Name+" "+s.Control)
	}
	c.Standards = slices.Compact(c.Standards)
	c.Checks[0].Standards = c.Standards
}

func ocsfTags(d *Document, f *finding.Finding) []ocsfTag {
	tags := []ocsfTag{{Name: "profile", Value: d.Profile}}
	if f.Exposure != "" {
		tags = append(tags, ocsfTag{Name: "exposure", Value: string(f.Exposure)})
	}
	if len(f.Tenants) > 0 {
		tags = append(tags, ocsfTag{Name: "tenants", Values: f.Tenants})
	}
	return tags
}

// ocsfResources returns the functions in reach, the one at fault first, or the
// finding's other object.
func ocsfResources(d *Document, f *finding.Finding) []ocsfResource {
	var all []ocsfResource
	if f.Device != nil {
		all = append(all, ocsfResource{UID: address(f), Name: address(f), Type: "PCI function", Role: 1, RoleName: "Target"})
	}
	if f.Object != "" {
		all = append(all, ocsfResource{UID: f.Object, Name: f.Object, Type: "Object", Role: 1, RoleName: "Target"})
	}
	for _, a := range addresses(f) {
		// The function at fault is the target already.
		if a != address(f) {
			all = append(all, ocsfResource{UID: a, Name: a, Type: "PCI function", Role: 3, RoleName: "Affected"})
		}
	}
	if len(all) == 0 {
		all = append(all, ocsfResource{UID: d.Subject.Label(), Name: d.Subject.Label(), Type: d.Subject.Kind, Role: 1, RoleName: "Target"})
	}
	return all
}

func ocsfSeverity(s rule.Severity) (id int, name string) {
	switch s {
	case rule.Critical:
		return 5, "Critical"
	case rule.High:
		return 4, "High"
	case rule.Medium:
		return 3, "Medium"
	case rule.Low:
		return 2, "Low"
	default:
		return 1, "Informational"
	}
}

// ocsfStatus: the schema has pass, warning, fail and unknown; other states are "other"
// with the audit's name.
func ocsfStatus(s finding.State) (id int, name string) {
	switch s {
	case finding.Pass:
		return 1, "Pass"
	case finding.Fail, finding.Waived:
		return 3, "Fail"
	case finding.Unknown:
		return 0, "Unknown"
	case finding.Error, finding.Manual, finding.NotApplicable:
	}
	return 99, string(s)
}

// The classes and objects of the Open Cybersecurity Schema Framework that a
// Compliance Finding needs, with the attributes that the audit fills in.
// (https://schema.ocsf.io/1.8.0/classes/compliance_finding)

const (
	ocsfVersion = "1.8.0"
	// ocsfFindings is the category, ocsfComplianceFinding the class, and ocsfCreate the
	// activity: an audit keeps no state, so its activity is always "created". A
	// collector recognizes known findings by finding_info.uid.
	ocsfFindings          = 2
	ocsfComplianceFinding = 2003
	ocsfCreate            = 1
)

type (
	ocsfEvent struct {
		Activity     int              `json:"activity_id"`
		ActivityName string           `json:"activity_name"`
		Category     int              `json:"category_uid"`
		CategoryName string           `json:"category_name"`
		Class        int              `json:"class_uid"`
		ClassName    string           `json:"class_name"`
		Type         int              `json:"type_uid"`
		TypeName     string           `json:"type_name"`
		Time         int64            `json:"time"`
		Severity     int              `json:"severity_id"`
		SeverityName string           `json:"severity"`
		Status       int              `json:"status_id"`
		StatusName   string           `json:"status"`
		StatusDetail string           `json:"status_detail,omitempty"`
		Comment      string           `json:"comment,omitempty"`
		Message      string           `json:"message"`
		Metadata     ocsfMetadata     `json:"metadata"`
		Finding      ocsfFinding      `json:"finding_info"`
		Compliance   ocsfCompliance   `json:"compliance"`
		Device       ocsfDevice       `json:"device"`
		Resources    []ocsfResource   `json:"resources"`
		Remediation  *ocsfRemediation `json:"remediation,omitempty"`
		Evidences    []ocsfEvidence   `json:"evidences,omitempty"`
	}
	ocsfMetadata struct {
		Version string      `json:"version"`
		Product ocsfProduct `json:"product"`
		LogName string      `json:"log_name"`
	}
	ocsfProduct struct {
		Name    string `json:"name"`
		Vendor  string `json:"vendor_name"`
		Version string `json:"version"`
	}
	ocsfFinding struct {
		UID      string       `json:"uid"`
		Title    string       `json:"title"`
		Desc     string       `json:"desc"`
		Analytic ocsfAnalytic `json:"analytic"`
		LastSeen int64        `json:"last_seen_time"`
		Sources  []string     `json:"data_sources,omitempty"`
		Tags     []ocsfTag    `json:"tags"`
	}
	ocsfAnalytic struct {
		UID  string `json:"uid"`
		Name string `json:"name"`
		// Type is 1: a rule.
		Type     int    `json:"type_id"`
		TypeName string `json:"type"`
		Version  string `json:"version"`
	}
	ocsfTag struct {
		Name   string   `json:"name"`
		Value  string   `json:"value,omitempty"`
		Values []string `json:"values,omitempty"`
	}
	ocsfCompliance struct {
		Control      string      `json:"control"`
		Desc         string      `json:"desc,omitempty"`
		Standards    []string    `json:"standards,omitempty"`
		Requirements []string    `json:"requirements,omitempty"`
		Checks       []ocsfCheck `json:"checks"`
		Status       int         `json:"status_id"`
		StatusName   string      `json:"status"`
		StatusCode   string      `json:"status_code"`
		Details      []string    `json:"status_details"`
	}
	ocsfCheck struct {
		UID          string   `json:"uid"`
		Name         string   `json:"name"`
		Desc         string   `json:"desc,omitempty"`
		Severity     int      `json:"severity_id"`
		SeverityName string   `json:"severity"`
		Status       int      `json:"status_id"`
		StatusName   string   `json:"status"`
		Standards    []string `json:"standards,omitempty"`
	}
	ocsfDevice struct {
		Hostname string `json:"hostname"`
		// Type is 1: a server.
		Type     int    `json:"type_id"`
		TypeName string `json:"type"`
		BootUID  string `json:"boot_uid,omitempty"`
	}
	ocsfResource struct {
		UID      string `json:"uid"`
		Name     string `json:"name"`
		Type     string `json:"type"`
		Role     int    `json:"role_id"`
		RoleName string `json:"role"`
	}
	ocsfRemediation struct {
		Desc string `json:"desc"`
	}
	ocsfEvidence struct {
		Data any `json:"data"`
	}
)
