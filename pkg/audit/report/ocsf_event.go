package report

// The classes and objects of the Open Cybersecurity Schema Framework that a
// Compliance Finding needs, with the attributes that the audit fills in.
// (https://schema.ocsf.io/1.8.0/classes/compliance_finding)

const (
	ocsfVersion = "1.8.0"
	// ocsfFindings is the category, ocsfComplianceFinding the class, and ocsfCreate the
	// activity: an audit that keeps no state always says "created"; finding_info.uid
	// says what it knows already.
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
