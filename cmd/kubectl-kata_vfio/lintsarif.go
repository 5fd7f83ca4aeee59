package main

import (
	"io"
	"net/url"
	"path/filepath"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/kata-vfio/kata-vfio/pkg/cli/command"
	"github.com/kata-vfio/kata-vfio/pkg/cli/output"
	"github.com/kata-vfio/kata-vfio/pkg/lint"
	"github.com/kata-vfio/kata-vfio/pkg/rule"
)

const (
	homepage = "https://github.com/kata-vfio/kata-vfio"
	// unreadableRule is the SARIF rule of texts that are no Kubernetes objects. Such a problem has neither a code nor an object.
	unreadableRule = "Unreadable"
	// misfitRule is the SARIF rule of the other problems without a code.
	misfitRule = "Misfit"
)

// writeLintSARIF writes a SARIF 2.1.0 log of one run, so that a forge shows each problem at its line. Its rules are the codes that explain
// knows, and one each for texts that are not objects and for other problems without a code.
func writeLintSARIF(w io.Writer, r *lint.Report) error {
	texts, err := rule.Texts()
	if err != nil {
		return err
	}
	run := sarif.NewRunWithInformationURI("kubectl-kata_vfio lint", homepage)
	run.Tool.Driver.WithVersion(command.Build())
	indexes := map[string]int{}
	for i := range r.Problems {
		p := &r.Problems[i]
		id := sarifID(p)
		index, known := indexes[id]
		if !known {
			index = len(indexes)
			indexes[id] = index
			run.Tool.Driver.AddRule(lintRule(id, texts))
		}
		run.AddResult(lintResult(p).WithRuleIndex(index))
	}
	return output.SARIF(w, sarif.NewReport().AddRun(run))
}

func sarifID(p *lint.Problem) string {
	switch {
	case p.Code != "":
		return string(p.Code)
	case p.Object != "":
		return misfitRule
	}
	return unreadableRule
}

func lintRule(id string, texts []rule.Text) *sarif.ReportingDescriptor {
	title, why := "The text is no Kubernetes object", "Nothing is known of it, so nothing was checked."
	if id == misfitRule {
		title, why = "A field or a reference is wrong", "The API server refuses or drops it, or a pod gets no devices."
	}
	if t, ok := rule.Find(texts, id); ok {
		title, why = t.Title, t.Why
	}
	said := sarif.NewRule(id).WithName(id).WithShortDescription(sarif.NewMultiformatMessageString().WithText(title))
	if why != "" {
		said.WithFullDescription(sarif.NewMultiformatMessageString().WithText(why))
	}
	return said
}

func lintResult(p *lint.Problem) *sarif.Result {
	text := p.Text
	if p.Fix != "" {
		text += ". Fix: " + p.Fix
	}
	// GitHub wants a line of each result.
	region := sarif.NewRegion().WithStartLine(max(p.Line, 1))
	file := (&url.URL{Path: filepath.ToSlash(filepath.Clean(p.File))}).String() // "./a:b.yaml", because a: would be a scheme
	at := sarif.NewLocationWithPhysicalLocation(sarif.NewPhysicalLocation().WithArtifactLocation(sarif.NewSimpleArtifactLocation(file)).WithRegion(region))
	if p.Object != "" {
		name := p.Object
		if p.Field != "" {
			name += " " + p.Field
		}
		at.AddLogicalLocation(sarif.NewLogicalLocation().WithKind("resource").WithName(name).WithFullyQualifiedName(name))
	}
	return sarif.NewRuleResult(sarifID(p)).WithKind("fail").WithLevel("error").WithMessage(sarif.NewTextMessage(text)).AddLocation(at)
}
