package evidence

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/encode"
	"github.com/kata-vfio/kata-vfio/pkg/history"
	"github.com/kata-vfio/kata-vfio/pkg/isolation"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/pkg/terminal"
)

// Formats returns the names that [Document.Write] knows, the default first.
func Formats() []string { return []string{"text", "json", "yaml", "html"} }

// Write writes the document in the format.
func (d *Document) Write(w io.Writer, format string) error {
	switch format {
	case "text":
		return d.writeText(w)
	case "json":
		return encode.JSON(w, "evidence", d)
	case "yaml":
		return encode.YAML(w, "evidence", d)
	case "html":
		return d.writeHTML(w)
	}
	return fmt.Errorf("no such format: %s", format)
}

// page gathers lines.
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (d *Document) writeText(w io.Writer) error {
	var p page
	p.line("%s: %s", terminal.Visible(d.Question), d.verdict())
	for _, t := range d.Tenancies {
		p.line("")
		p.tenancy(t)
	}
	p.neighbours(d.Neighbours)
	for i := range d.Refusals {
		r := &d.Refusals[i]
		p.line("\n%s  refused      claim %s: %s", stamp(r.Time), claimName(&r.Claim), terminal.Visible(r.Reason))
	}
	p.ledger(&d.Ledger)
	_, err := io.WriteString(w, p.String())
	if err != nil {
		return fmt.Errorf("write evidence: %w", err)
	}
	return nil
}

// verdict sums up in one line.
func (d *Document) verdict() string {
	if len(d.Tenancies) == 0 {
		return "the ledger knows of no function"
	}
	open, unproven := 0, 0
	for _, t := range d.Tenancies {
		if t.To == nil {
			open++
		} else if !t.Undone && len(t.Stays) > 0 && !t.After.Proven() {
			unproven++
		}
	}
	text := fmt.Sprintf("%s on node %s, %d held now", plural(len(d.Tenancies), "tenancy", "tenancies"), terminal.Visible(d.Node), open)
	if unproven > 0 {
		text += fmt.Sprintf(", %d given back without proof of being clean", unproven)
	}
	if n := len(d.Neighbours); n > 0 {
		text += ", near " + plural(n, "tenancy of another tenant", "tenancies of other tenants")
	}
	return text
}

func (p *page) tenancy(t *history.Tenancy) {
	p.line("%s  claim %s (uid %s)%s", t.Device.Address, claimName(&t.Claim), terminal.Visible(t.Claim.UID), podNames(t))
	p.line("  %s  before       %s", blank, before(t))
	p.line("  %s  taken        %s", stamp(t.From), isolationWords(&t.Device))
	for _, s := range t.Stays {
		p.line("  %s  in a VM      sandbox %s%s", stamp(s.From), terminal.Visible(s.VM.Sandbox), vmmWords(&s.VM))
		if s.To != nil {
			p.line("  %s  out of it    ", stamp(*s.To))
		}
	}
	if t.After != nil {
		p.line("  %s  cleaned      %s", stamp(t.After.Time), cleaningWords(t.After))
	}
	switch {
	case t.Quarantined != "":
		p.line("  %s  quarantined  %s", blank, terminal.Visible(t.Quarantined))
	case t.To == nil:
		p.line("  %s  held         until now", blank)
	case t.Undone:
		p.line("  %s  undone       no VM had it", stamp(*t.To))
	case t.Unproven:
		p.line("  %s  given back   not proven clean; it is reset before the next tenant", stamp(*t.To))
	default:
		p.line("  %s  given back", stamp(*t.To))
	}
	for _, doubt := range t.Doubts {
		p.line("  %s  doubt        %s", blank, terminal.Visible(doubt))
	}
	p.line("  %s  by events    %s", blank, numbers(t.Events))
}

// blank is as wide as a stamp.
const blank = "                    "

func before(t *history.Tenancy) string {
	switch {
	case t.Before != nil:
		return "cleaned " + stamp(t.Before.Time) + " by " + cleaningWords(t.Before)
	case t.First:
		return "the ledger has no earlier tenant of this function"
	}
	return "no reset since the earlier tenant is in the ledger"
}

func isolationWords(d *ledger.Device) string {
	var words []string
	switch {
	case d.Isolation == nil:
		words = append(words, "no verdict on its isolation")
	case d.Isolation.Isolated:
		words = append(words, "isolated")
	default:
		words = append(words, "NOT isolated: "+codes(d.Isolation.Reasons))
	}
	if d.Group != nil {
		words = append(words, fmt.Sprintf("IOMMU group %d of %s", *d.Group, plural(len(d.GroupMembers), "function", "functions")))
	}
	if len(d.Upstream) > 0 {
		words = append(words, "below "+d.Upstream[0].String())
	}
	if d.Isolation != nil && len(d.Isolation.Notes) > 0 {
		words = append(words, "notes "+codes(d.Isolation.Notes))
	}
	return strings.Join(words, "; ")
}

func codes(list []isolation.Code) string {
	words := make([]string, len(list))
	for i, c := range list {
		words[i] = terminal.Visible(string(c))
	}
	return strings.Join(words, " ")
}

func vmmWords(vm *ledger.VM) string {
	if vm.PID == 0 {
		return ", its VMM is not known"
	}
	return fmt.Sprintf(", VMM pid %d (start %d)", vm.PID, vm.StartTime)
}

func (p *page) neighbours(near []history.Neighbour) {
	if len(near) == 0 {
		return
	}
	p.line("\nNear it at the same time:")
	for i := range near {
		n := &near[i]
		until := "now"
		if n.To != nil {
			until = stamp(*n.To)
		}
		p.line("  %s to %s  %s (claim %s) shares %s with %s", stamp(n.From), until, n.Other.Device.Address, claimName(&n.Other.Claim), n.Relation, n.Mine.Device.Address)
	}
}

func (p *page) ledger(s *Standing) {
	state := "chain, tree and signatures are sound"
	if !s.Sound {
		state = "NOT sound"
	}
	p.line("\nLedger: %d events, %s", s.Events, state)
	for _, problem := range s.Problems {
		p.line("  problem: %s", terminal.Visible(problem))
	}
	for _, doubt := range s.Doubts {
		p.line("  %s", terminal.Visible(doubt))
	}
}

// cleaningWords says how a function was cleaned.
func cleaningWords(c *history.Cleaning) string {
	text := fmt.Sprintf("%s in %d ms", terminal.Visible(c.Proof.Method), c.Proof.Milliseconds)
	if c.Proven() {
		return text + fmt.Sprintf(", proven: the fingerprint is as before (event %d)", c.Event)
	}
	if c.Reason != "" {
		text += ": " + terminal.Visible(c.Reason)
	}
	return text + fmt.Sprintf(", NOT proven (event %d)", c.Event)
}

func stamp(t time.Time) string { return t.UTC().Format(time.DateTime) + "Z" }

func claimName(c *ledger.Claim) string {
	if c.Name == "" {
		return terminal.Visible(c.UID)
	}
	return terminal.Visible(c.Namespace + "/" + c.Name)
}

func podNames(t *history.Tenancy) string {
	var names []string
	for _, p := range t.Pods {
		names = append(names, terminal.Visible(t.Claim.Namespace+"/"+p.Name))
	}
	if len(names) == 0 {
		return ""
	}
	return " for pod " + strings.Join(names, ", ")
}

func numbers(list []int64) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = fmt.Sprint(n)
	}
	return strings.Join(words, " ")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
