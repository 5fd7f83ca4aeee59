package report

import (
	"io"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const homepage = "https://github.com/kata-vfio/kata-vfio"

// writeSARIF writes a SARIF 2.1.0 log of one run: the failures, waived ones included, and their rules. The summary in the invocation's
// properties counts all findings. The audit does not check files of a repository: an artifact is "node/<name>" and the path on the node.
func writeSARIF(w io.Writer, d *Document) error {
	log, err := sarifLog(d)
	if err != nil {
		return err
	}
	return output.SARIF(w, log)
}

func sarifLog(d *Document) (*sarif.Report, error) {
	frameworks, err := finding.Frameworks()
	if err != nil {
		return nil, err
	}
	run := sarif.NewRunWithInformationURI("kata-vfio-audit", homepage)
	run.Tool.Driver.WithVersion(d.Subject.Version)
	rules := map[string]int{}
	for i := range d.Rules {
		if d.failsRule(d.Rules[i].ID) {
			rules[d.Rules[i].ID] = len(rules)
			run.Tool.Driver.AddRule(sarifRule(&d.Rules[i], finding.ControlsFor(frameworks, d.Rules[i].ID)))
		}
	}
	ids := d.identities()
	for i := range d.Findings {
		f := &d.Findings[i]
		if !fails(f) {
			continue
		}
		result := sarifResult(d, f).WithPartialFingerprints(map[string]string{"kataVfioFinding/v1": ids[i]})
		if index, ok := rules[f.ID]; ok {
			result.WithRuleIndex(index)
		}
		run.AddResult(result)
	}
	// GitHub replaces the earlier results of a category, which is the ID up to its last slash. So each subject has its own.
	run.WithAutomationDetails(sarif.NewRunAutomationDetails().WithID("kata-vfio-audit/" + d.Subject.Kind + "/" + strings.ReplaceAll(strings.Trim(d.Subject.Label(), "/"), "/", "_") + "/"))
	run.AddInvocation(sarif.NewInvocation().WithExecutionSuccessful(true).WithEndTimeUtc(d.Subject.Time).
		WithProperties(bag(map[string]any{"subject": d.Subject, "profile": d.Profile, "summary": d.Summary})))
	return sarif.NewReport().AddRun(run), nil
}

// fails reports whether the finding is a failure, waived or not.
func fails(f *finding.Finding) bool { return f.State == finding.Fail || f.State == finding.Waived }

func (d *Document) failsRule(id string) bool {
	return slices.ContainsFunc(d.Findings, func(f finding.Finding) bool { return f.ID == id && fails(&f) })
}

func sarifRule(r *rule.Rule, supports []finding.Support) *sarif.ReportingDescriptor {
	text := r.Why + "\n\nFix: " + r.Fix
	markdown := md(r.Why) + "\n\n**Fix:** " + md(r.Fix)
	if r.Verify != "" {
		text += "\n\nBy hand: " + r.Verify
		markdown += "\n\n**By hand:** " + code(r.Verify)
	}
	tags := []string{"security", "pci-passthrough", r.Group()}
	for _, s := range supports {
		tags = append(tags, "supports/"+s.Framework+"/"+s.Control)
	}
	properties := bag(map[string]any{"security-severity": sarifScore(r.Severity), "precision": "high", "sources": notNil(r.Sources)})
	return sarif.NewRule(r.ID).WithName(r.ID).
		WithShortDescription(sarif.NewMultiformatMessageString().WithText(r.Title)).
		WithFullDescription(sarif.NewMultiformatMessageString().WithText(r.Why)).
		WithHelp(sarif.NewMultiformatMessageString().WithText(text).WithMarkdown(markdown)).
		WithDefaultConfiguration(sarif.NewReportingConfiguration().WithEnabled(true).WithLevel(sarifLevel(r.Severity)).WithRank(-1)).
		WithProperties(properties.WithTags(tags))
}

func sarifResult(d *Document, f *finding.Finding) *sarif.Result {
	result := sarif.NewRuleResult(f.ID).WithKind("fail").WithLevel(sarifLevel(f.Severity)).
		WithMessage(sarif.NewTextMessage(about(f) + ": " + f.Text)).
		AddLocation(sarifLocation(d, f))
	properties := map[string]any{
		"state": f.State, "severity": f.Severity, "exposure": f.Exposure, "devices": addresses(f), "tenants": notNil(f.Tenants),
		"evidence": notNil(f.Evidence), "remediation": f.Remediation, "verify": f.Verify,
	}
	if f.Pending != "" {
		properties["pending"] = f.Pending
	}
	if f.Waiver != nil {
		properties["waiver"] = f.Waiver
	}
	if f.State == finding.Waived {
		// "external": the decision is kept outside of the audited node (3.35.2).
		result.AddSuppression(sarif.NewSuppression().WithKind("external").WithStatus("accepted").WithJustification(waiverWords(f.Waiver)))
	}
	return result.WithProperties(bag(properties))
}

func sarifLevel(s rule.Severity) string {
	switch s {
	case rule.Critical, rule.High:
		return "error"
	case rule.Medium:
		return "warning"
	default:
		return "note"
	}
}

// sarifScore returns the score by which GitHub sorts: over 9.0 is critical, from 7.0 high, from 4.0 medium, below low.
func sarifScore(s rule.Severity) string {
	switch s {
	case rule.Critical:
		return "9.5"
	case rule.High:
		return "8.0"
	case rule.Medium:
		return "5.5"
	case rule.Low:
		return "2.0"
	default:
		return "0.0"
	}
}

// sarifLocation returns the first file of the evidence, or the function's directory, with the function or the object as
// logical location.
func sarifLocation(d *Document, f *finding.Finding) *sarif.Location {
	file := ""
	if f.Device != nil {
		file = "/sys/bus/pci/devices/" + address(f)
	}
	for _, e := range f.Evidence {
		if strings.HasPrefix(e.Path, "/") {
			file = e.Path
			break
		}
	}
	subject := d.Subject.Kind + "/" + strings.ReplaceAll(strings.Trim(d.Subject.Label(), "/"), "/", "_")
	artifact := sarif.NewSimpleArtifactLocation((&url.URL{Path: subject + path.Clean("/"+file)}).EscapedPath())
	// GitHub wants a line of each result.
	physical := sarif.NewPhysicalLocation().WithArtifactLocation(artifact).WithRegion(sarif.NewRegion().WithStartLine(1))
	logical := sarif.NewLogicalLocation().WithKind("resource").WithName(about(f)).WithFullyQualifiedName(subject + "/" + about(f))
	return sarif.NewLocationWithPhysicalLocation(physical).AddLogicalLocation(logical)
}

func bag(properties map[string]any) *sarif.PropertyBag {
	b := sarif.NewPropertyBag()
	for key, value := range properties {
		b.Add(key, value)
	}
	return b
}

func notNil[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}
