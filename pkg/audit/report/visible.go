package report

import (
	"slices"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/cli/terminal"
)

// visible returns a copy in which every text is as [terminal.Visible] has it.
func (d *Document) visible() *Document {
	r := *d.Report
	r.Subject = visibleSubject(r.Subject)
	r.Profile = terminal.Visible(r.Profile)
	r.Findings = make([]finding.Finding, len(d.Findings))
	for i := range d.Findings {
		r.Findings[i] = visibleFinding(d.Findings[i])
	}
	shown := *d
	shown.Report = &r
	return &shown
}

func visibleSubject(s finding.Subject) finding.Subject {
	makeVisible(&s.Kind, &s.Name, &s.Root, &s.BootID, &s.Kernel, &s.Time, &s.Version, &s.LeftOut)
	return s
}

func visibleFinding(f finding.Finding) finding.Finding {
	makeVisible(&f.ID, &f.Title, &f.Object, &f.Text, &f.Pending, &f.Remediation, &f.Verify)
	makeVisible(&f.State)
	makeVisible(&f.Severity)
	makeVisible(&f.Exposure)
	f.Tenants = slices.Clone(f.Tenants)
	for i := range f.Tenants {
		makeVisible(&f.Tenants[i])
	}
	f.Evidence = slices.Clone(f.Evidence)
	for i := range f.Evidence {
		e := &f.Evidence[i]
		makeVisible(&e.Path, &e.Value, &e.How, &e.Error, &e.Needs)
	}
	if f.Waiver != nil {
		w := *f.Waiver
		makeVisible(&w.Rule, &w.Scope, &w.Until, &w.Reason, &w.Author)
		f.Waiver = &w
	}
	return f
}

func makeVisible[T ~string](texts ...*T) {
	for _, text := range texts {
		*text = T(terminal.Visible(string(*text)))
	}
}
