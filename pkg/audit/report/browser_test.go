package report_test

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kata-vfio/kata-vfio/pkg/audit/finding"
	"github.com/kata-vfio/kata-vfio/pkg/audit/report"
	"github.com/kata-vfio/kata-vfio/pkg/ledger"
	"github.com/kata-vfio/kata-vfio/test/chromium"
	"github.com/kata-vfio/kata-vfio/test/golden"
)

var shots = flag.String("shots", "", "write screenshots and PDFs into this directory")

// desk is a common screen.
func desk() chromium.View { return chromium.View{Width: 1320, Height: 900} }

// browser opens pages as they would be out of a mail: from a file.
type browser struct {
	t *testing.T
	*chromium.Browser
}

func (b browser) open(p *report.Page, v chromium.View) *chromium.Page {
	b.t.Helper()
	return b.openText(render(b.t, p), v)
}

func (b browser) openText(text string, v chromium.View) *chromium.Page {
	b.t.Helper()
	path := filepath.Join(b.t.TempDir(), "report.html")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
	return b.Open("file://"+path, v)
}

func (b browser) keep(name string, take func() []byte) {
	b.t.Helper()
	if *shots == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(*shots, name), take(), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// eval returns the value of an expression in the page.
func eval[T any](p *chromium.Page, expression string) T {
	var result T
	p.Eval(expression, &result)
	return result
}

func TestInChromium(t *testing.T) {
	b := chromium.Start(t)
	for name, test := range map[string]func(browser){
		"it asks for nothing and complains of nothing":      asksForNothing,
		"markup in names does nothing":                      markupDoesNothing,
		"its policy stops what escaping would not":          policyHolds,
		"filters narrow the findings":                       filtersNarrow,
		"a click in the drawing leads to the device":        clicksLead,
		"without scripts all of it is there":                noScript,
		"contrast is enough in light and dark":              contrasts,
		"a phone needs no scrolling sideways":               phone,
		"paper has what matters, on few pages":              paper,
		"paper has all of it on demand":                     fullPaper,
		"a fleet can be filtered and printed":               fleetIsFiltered,
		"a terminal of 100 columns has room for a report":   terminal,
		"a node of 2,048 functions opens in a second":       opensFast,
		"parts that can be operated have names for readers": named,
		"the past can be read, and in evidence as well":     pastIsReadable,
		"markup in a ledger does nothing":                   ledgerDoesNothing,
	} {
		t.Run(name, func(t *testing.T) { test(browser{t, b}) })
	}
}

func asksForNothing(b browser) {
	p := b.open(samplePage(), desk())
	if asked := p.Asked(); len(asked) != 1 {
		b.t.Errorf("it asked for %q", asked)
	}
	if said := p.Complaints(); len(said) > 0 {
		b.t.Errorf("complaints: %q", said)
	}
	if color := eval[string](p, `getComputedStyle(document.querySelector(".verdict .sign")).color`); color != "rgb(255, 255, 255)" {
		b.t.Errorf("the style sheet is not in force: the sign is %s", color)
	}
	if hidden := eval[bool](p, `document.getElementById("filters").hidden`); hidden {
		b.t.Error("the script did not run")
	}
	b.keep("light.png", func() []byte { return p.Screenshot(true) })
	b.keep("top.png", func() []byte { return p.Screenshot(false) })
	if golden.Updating() { // the README's picture
		picture(b)
	}
}

// picture takes the README's picture: the verdict and the drawing.
func picture(b browser) {
	p := b.open(samplePage(), chromium.View{Width: 1240, Height: 1360})
	if err := os.WriteFile(filepath.Join("testdata", "report.png"), p.Screenshot(false), 0o644); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(pictured, []byte(digest(b.t)), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// pictured has the digest of the page that was pictured.
const pictured = "testdata/report.png.sha256"

func digest(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("%x\n", sha256.Sum256([]byte(render(t, samplePage()))))
}

// TestPictureIsOfThePage: the READMEs show the page as it is. Pixels differ between versions of a browser and its fonts, so
// the page itself is compared.
func TestPictureIsOfThePage(t *testing.T) {
	want, err := os.ReadFile(pictured)
	if err != nil {
		t.Fatal(err)
	}
	if got := digest(t); got != string(want) {
		t.Errorf("the page has the digest %swant %sThe page changed after its picture was taken: `make picture` takes it again", got, want)
	}
}

// markup would run a script if it were ever taken for markup, style or script.
const markup = `"'><img src=x onerror="ran=1"><script>ran=1</script><svg onload=ran=1></svg></title></style></script><script>ran=1</script>` +
	`<a href="javascript:ran=1">x</a>{{.}}${ran=1}` + "`" + `</code>` + "`"

func markupDoesNothing(b browser) {
	p := b.open(hostile(markup), desk())
	if eval[bool](p, `"ran" in globalThis`) {
		b.t.Error("a script ran")
	}
	if n := eval[int](p, `document.querySelectorAll("img, iframe, object, [onerror], [onload], a[href^='javascript:']").length`); n != 0 {
		b.t.Errorf("%d elements came out of names", n)
	}
	if n := eval[int](p, `document.scripts.length`); n != 1 {
		b.t.Errorf("the page has %d scripts", n)
	}
	if asked := p.Asked(); len(asked) != 1 {
		b.t.Errorf("it asked for %q", asked)
	}
	if said := p.Complaints(); len(said) > 0 {
		b.t.Errorf("something was there to refuse: %q", said)
	}
	if !eval[bool](p, `document.body.textContent.includes("<script>ran=1</script>")`) {
		b.t.Error("the names can't be read")
	}
}

// policyHolds puts into the page what escaping keeps out.
func policyHolds(b browser) {
	p := b.open(samplePage(), desk())
	p.Eval(`(() => {
		const s = document.createElement("script"); s.textContent = "globalThis.ran = 1"; document.body.append(s);
		const i = new Image(); i.src = "http://127.0.0.1:9/x"; document.body.append(i);
		const d = document.createElement("div"); d.setAttribute("onclick", "globalThis.ran = 1"); document.body.append(d); d.click();
	})()`, nil)
	if eval[bool](p, `"ran" in globalThis`) {
		b.t.Error("a script that is not the page's ran")
	}
	if refused := eval[string](p, `fetch("http://127.0.0.1:9/").then(() => "answered", (e) => String(e))`); !strings.Contains(refused, "Failed to fetch") {
		b.t.Errorf("fetch: %s", refused)
	}
	if said := strings.Join(p.Complaints(), "\n"); strings.Count(said, "Content Security Policy") < 3 {
		b.t.Errorf("the policy did not speak up for script, image and handler:\n%s", said)
	}
}

// visible counts elements that are on the screen or would be, were it larger.
func visible(p *chromium.Page, selector string) int {
	return eval[int](p, `[...document.querySelectorAll("`+selector+`")].filter((e) => e.checkVisibility({contentVisibilityAuto: false})).length`)
}

// choose sets a filter.
func choose(p *chromium.Page, name, value string) {
	p.Eval(`(() => { const e = document.getElementById("filters").elements["`+name+`"]; e.value = "`+value+`"; e.dispatchEvent(new Event("input", {bubbles: true})); })()`, nil)
}

func filtersNarrow(b browser) {
	p := b.open(samplePage(), desk())
	for _, tt := range []struct {
		filter, value string
		want          int
		said          string
	}{
		{"state", "fail", 5, "5 of 13 shown"},
		{"severity", "critical", 3, "3 of 13 shown"},
		{"tenant", "team-green", 1, "1 of 13 shown"},
		{"text", "0000:83:00.0 GREEN", 1, "1 of 13 shown"},
		{"group", "NIC", 0, "0 of 13 shown"},
	} {
		choose(p, tt.filter, tt.value)
		if got := visible(p, "details.item"); got != tt.want {
			b.t.Errorf("%s %q: %d findings are shown, want %d", tt.filter, tt.value, got, tt.want)
		}
		if said := eval[string](p, `document.getElementById("shown").textContent`); said != tt.said {
			b.t.Errorf("%s %q: it says %q", tt.filter, tt.value, said)
		}
	}
	p.Eval(`document.querySelector("#filters button").click()`, nil)
	if got := visible(p, "details.item"); got != 9 {
		b.t.Errorf("cleared, %d findings are shown; want all but the four that are folded away", got)
	}
	p.Eval(`document.querySelector('.numbers a[data-state="pass"]').click()`, nil)
	if got := visible(p, "details.item"); got != 3 {
		b.t.Errorf("a click on what passes shows %d findings", got)
	}
	p.Eval(`document.querySelector('.numbers a[data-state="unknown error"]').click()`, nil)
	number := eval[string](p, `document.querySelector('.numbers a[data-state="unknown error"] b').textContent`)
	if got := visible(p, "details.item"); got != 2 || number != "2" {
		b.t.Errorf("a click on %q without an answer shows %d findings, want 2", number, got)
	}
	b.keep("filtered.png", func() []byte { return p.Screenshot(false) })
}

func clicksLead(b browser) {
	p := b.open(samplePage(), desk())
	p.Eval(`document.querySelector('.topology a[href="#d-0000-47-00-3"]').dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true}))`, nil)
	p.Eval(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))`, nil)
	const row = `document.getElementById("d-0000-47-00-3")`
	if !eval[bool](p, row+`.checkVisibility() && (({top, bottom}) => top >= 0 && bottom <= innerHeight)(`+row+`.getBoundingClientRect())`) {
		b.t.Error("the VF's row is not in view")
	}
	b.keep("device.png", func() []byte { return p.Screenshot(false) })
}

func noScript(b browser) {
	v := desk()
	v.NoScript = true
	p := b.open(samplePage(), v)
	if n := visible(p, ".needs-script"); n != 0 {
		b.t.Errorf("%d controls are shown that do nothing", n)
	}
	if n := visible(p, "details.item > summary"); n != 9 {
		b.t.Errorf("%d findings are shown", n)
	}
	p.Eval(`for (const d of document.querySelectorAll("details")) d.open = true`, nil)
	for selector, want := range map[string]int{"details.item .finding": 14, "details.device .inside": 9, ".rule": 13, ".vfs tbody tr": 48, ".tenancies tbody tr": 17} {
		if n := visible(p, selector); n != want {
			b.t.Errorf("opened, it shows %d of %s, want %d", n, selector, want)
		}
	}
	if said := p.Complaints(); len(said) > 0 {
		b.t.Errorf("complaints: %q", said)
	}
	b.keep("open.png", func() []byte { return p.Screenshot(true) })
}

// faint lists texts whose contrast with what is behind them is below 4.5 (WCAG 2 AA).
const faint = `(() => {
	const channel = (c) => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
	const parse = (s) => s.match(/[\d.]+/g).map(Number);
	const light = ([r, g, b]) => .2126 * channel(r) + .7152 * channel(g) + .0722 * channel(b);
	const behind = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] === 1) return c; } return [255, 255, 255]; };
	const found = new Set();
	const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (texts.nextNode()) {
		const e = texts.currentNode.parentElement;
		if (!texts.currentNode.data.trim() || e.closest("script, svg, select") || !e.checkVisibility()) continue;
		const [a, b] = [light(parse(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
		if ((a + .05) / (b + .05) < 4.5) found.add(e.className + " " + e.tagName + ": " + texts.currentNode.data.slice(0, 30) + " " + ((a + .05) / (b + .05)).toFixed(2));
	}
	return [...found];
})()`

func contrasts(b browser) {
	for _, dark := range []bool{false, true} {
		v := desk()
		v.Dark = dark
		p := b.open(samplePage(), v)
		p.Eval(`for (const d of document.querySelectorAll("details")) d.open = true`, nil)
		background := eval[string](p, `getComputedStyle(document.body).backgroundColor`)
		if wasDark := background != "rgb(255, 255, 255)"; wasDark != dark {
			b.t.Errorf("dark %v: the page is %s", dark, background)
		}
		for _, text := range eval[[]string](p, faint) {
			b.t.Errorf("dark %v: too little contrast: %s", dark, text)
		}
		if dark {
			b.keep("dark.png", func() []byte { return p.Screenshot(true) })
		}
	}
}

func phone(b browser) {
	p := b.open(samplePage(), chromium.View{Width: 390, Height: 844, Phone: true})
	if width := eval[int](p, `document.documentElement.scrollWidth`); width > 390 {
		b.t.Errorf("the page is %d pixels wide", width)
	}
	// Both drawings link to the functions: of the one in view, each GPU's card is within the screen.
	inSight := eval[int](p, `[...document.querySelectorAll(".topology .card.function")].filter((e) => {
		const {left, right, width} = e.getBoundingClientRect(); return width > 200 && left >= 0 && right <= 390; }).length`)
	if inSight != 9 {
		b.t.Errorf("%d GPUs and NICs of the drawing are in sight, want 9", inSight)
	}
	b.keep("phone.png", func() []byte { return p.Screenshot(true) })
}

// maxSheets is how many pages a printed report may have.
const maxSheets = 8

// footOf returns the rules for the foot of a sheet as Chromium has parsed them.
func footOf(p *chromium.Page) string {
	return eval[string](p, `[...document.styleSheets[0].cssRules].filter((r) => r instanceof CSSPageRule).map((r) => r.cssText).join("\n")`)
}

// noEmptySheet empties the page, prints it again, and compares the sheets with that one, which has nothing but the foot.
func (b browser) noEmptySheet(name string, p *chromium.Page, sheets []chromium.Sheet) {
	b.t.Helper()
	p.Eval(`document.body.replaceChildren()`, nil)
	empty := chromium.Sheets(p.PDF())
	if len(empty) != 1 || empty[0].Texts == 0 {
		b.t.Fatalf("%s: a page without content has the sheets %+v, want one with the foot", name, empty)
	}
	const digits = 4 // of page numbers that are longer than 1 of 1
	for i, sheet := range sheets {
		if sheet.Texts <= empty[0].Texts+digits {
			b.t.Errorf("%s: page %d of %d is empty", name, i+1, len(sheets))
		}
	}
}

func paper(b browser) {
	v := desk()
	v.Dark, v.NoScript = true, true
	pages := map[string]*report.Page{"small": samplePage(), "single": single(), "worst": worst(), "cluster": cluster()}
	if !testing.Short() { // Chromium lays 2,048 functions out for as long as all other pages together
		pages["large"] = large()
	}
	for name, p := range pages {
		shown := b.open(p, v)
		pdf := shown.PDF()
		b.keep("paper-"+name+".pdf", func() []byte { return pdf })
		sheets := chromium.Sheets(pdf)
		b.t.Logf("%s: %d pages", name, len(sheets))
		if len(sheets) == 0 || len(sheets) > maxSheets {
			b.t.Errorf("%s: it has %d pages, want 1 to %d", name, len(sheets), maxSheets)
		}
		if foot := footOf(shown); !strings.Contains(foot, "counter(pages)") || !strings.Contains(foot, p.Report.Subject.Name) {
			b.t.Errorf("%s: the foot of a sheet is %q, want the page's number and %q", name, foot, p.Report.Subject.Name)
		}
		shown.Print()
		if background := eval[string](shown, `getComputedStyle(document.body).backgroundColor`); background != "rgb(255, 255, 255)" {
			b.t.Errorf("%s: a dark screen makes the paper %s", name, background)
		}
		if n := visible(shown, ".top, .needs-script, .print-choice, .in-full"); n != 0 {
			b.t.Errorf("%s: %d parts are on paper that belong on a screen", name, n)
		}
		fails := p.Report.Summary.RuleStates[finding.Fail]
		if n := visible(shown, ".paper:nth-of-type(2) tr"); n != min(fails, 22) {
			b.t.Errorf("%s: %d failures are on paper, want %d", name, n, fails)
		}
		if n := eval[int](shown, `Math.round(document.getElementById("topology")?.getBoundingClientRect().height ?? 0)`); n > 1000 {
			b.t.Errorf("%s: the drawing takes %d pixels, more than a page", name, n)
		}
		b.noEmptySheet(name, shown, sheets)
	}
}

// maxFullSheets is how many pages all of a board's report may have.
const maxFullSheets = 18

// fullPaper prints the page with the box's option.
func fullPaper(b browser) {
	v := desk()
	v.NoScript = true
	p := b.open(samplePage(), v)
	p.Eval(`document.getElementById("print-full").click()`, nil)
	pdf := p.PDF()
	b.keep("report.pdf", func() []byte { return pdf })
	sheets := chromium.Sheets(pdf)
	b.t.Logf("all of it: %d pages", len(sheets))
	if len(sheets) < 5 || len(sheets) > maxFullSheets {
		b.t.Errorf("got %d pages, want 5 to %d: folded parts are there, and what passes takes a line", len(sheets), maxFullSheets)
	}
	p.Print()
	if n := visible(p, ".top, .needs-script, .paper"); n != 0 {
		b.t.Errorf("%d parts are on paper that are not of the whole report", n)
	}
	if n := visible(p, "details.item .finding table"); n != 8 {
		b.t.Errorf("%d of the evidence's tables are on paper, want the 8 of what does not pass", n)
	}
	if n := visible(p, ".vfs tbody tr"); n != 48 {
		b.t.Errorf("%d VFs are on paper", n)
	}
	b.noEmptySheet("everything", p, sheets)
}

// opensFast counts the processor's time: how long it takes by the clock depends on what else this host does. That still
// slows the processor down, so the best of three counts.
func opensFast(b browser) {
	best := time.Hour
	for range 3 {
		p := b.open(large(), desk())
		cost := p.Cost()
		b.t.Logf("it took Chromium %v to open: %v", cost["TaskDuration"], cost)
		if said := p.Complaints(); len(said) > 0 {
			b.t.Errorf("complaints: %q", said)
		}
		if h := eval[int](p, `Math.round(document.getElementById("topology").getBoundingClientRect().height)`); h > 2000 {
			b.t.Errorf("the drawing is %d pixels tall", h)
		}
		if n := visible(p, ".root"); n != 60 {
			b.t.Errorf("%d root buses are shown", n)
		}
		b.keep("large-all.png", func() []byte {
			p.Eval(`document.getElementById("topology").scrollIntoView()`, nil)
			return p.Screenshot(false)
		})
		b.keep("large.png", func() []byte { return p.Screenshot(false) })
		if best = min(best, cost["TaskDuration"]); best <= time.Second {
			return
		}
	}
	b.t.Errorf("it took %v", best)
}

func named(b browser) {
	p := b.open(samplePage(), desk())
	nameless := eval[[]string](p, `[...document.querySelectorAll("a, button, input, select, summary, [role]")].filter((e) =>
		!(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length)).map((e) => e.outerHTML.slice(0, 80))`)
	if len(nameless) > 0 {
		b.t.Errorf("without a name: %q", nameless)
	}
	if nested := eval[int](p, `document.querySelectorAll("summary a, summary button, summary input").length`); nested > 0 {
		b.t.Errorf("%d links or fields are inside of a summary, which is one itself", nested)
	}
	levels := eval[[]int](p, `[...document.querySelectorAll("h1, h2, h3, h4")].map((e) => Number(e.tagName[1]))`)
	for i := 1; i < len(levels); i++ {
		if levels[i] > levels[i-1]+1 {
			b.t.Errorf("heading %d is of level %d after %d", i, levels[i], levels[i-1])
		}
	}
}

// pastIsReadable looks at the report with its history, by a sound ledger and by one
// that is not, and at an answer.
func pastIsReadable(b browser) {
	p, book := past(b.t)
	answer := renderAnswer(b.t, answerOf(book))
	sound := render(b.t, p)
	book.tamper("team-blue", "team-blew")
	_, p.Ledger = book.read()
	phone := chromium.View{Width: 390, Height: 844, Phone: true}
	for name, text := range map[string]string{"past": sound, "unsound": render(b.t, p), "answer": answer, "unsound-answer": renderAnswer(b.t, answerOf(book))} {
		for _, dark := range []bool{false, true} {
			v := desk()
			v.Dark = dark
			shown := b.openText(text, v)
			shown.Eval(`for (const d of document.querySelectorAll("details.device")) d.open = true`, nil)
			for _, text := range eval[[]string](shown, faint) {
				b.t.Errorf("%s, dark %v: too little contrast: %s", name, dark, text)
			}
			if said := shown.Complaints(); len(said) > 0 || len(shown.Asked()) != 1 {
				b.t.Errorf("%s: complaints %q, asked for %q", name, said, shown.Asked())
			}
			b.keep(fmt.Sprintf("%s-dark-%v.png", name, dark), func() []byte { return shown.Screenshot(true) })
			for _, part := range []string{"d-0000-13-00-0", "tenancies"} {
				shown.Eval(`document.getElementById("`+part+`")?.scrollIntoView()`, nil)
				b.keep(fmt.Sprintf("%s-dark-%v-%s.png", name, dark, part), func() []byte { return shown.Screenshot(false) })
			}
		}
		small := b.openText(text, phone)
		if width := eval[int](small, `document.documentElement.scrollWidth`); width > 390 {
			b.t.Errorf("%s: on a phone it is %d pixels wide", name, width)
		}
		small.Print()
		if n := visible(small, ".top"); n != 0 {
			b.t.Errorf("%s: on paper there is a menu", name)
		}
	}
	shown := b.openText(answer, desk())
	if n := eval[int](shown, `document.scripts.length`); n != 0 {
		b.t.Errorf("an answer has %d scripts", n)
	}
	if color := eval[string](shown, `getComputedStyle(document.querySelector(".verdict .sign")).color`); color != "rgb(255, 255, 255)" {
		b.t.Errorf("an answer's style sheet is not in force: the sign is %s", color)
	}
}

func ledgerDoesNothing(b browser) {
	book := newBook(b.t)
	book.had(address("0000:13:00.0"), markup, markup, 5, false)
	book.add(ledger.Event{Type: ledger.Refusal, Result: ledger.Refused, Claim: &ledger.Claim{UID: "r", Namespace: markup, Name: markup}, Codes: []string{markup}, Reason: markup})
	p := samplePage()
	h, l := book.read()
	l.Verification.Sound, l.Verification.Problems, l.Verification.Doubts = false, []string{markup}, []string{markup}
	p.Ledger = l
	for _, one := range h.Tenancies {
		p.Tenancies = append(p.Tenancies, report.NewTenancy(one))
	}
	a := answerOf(book)
	a.Question, a.Verdict, a.Node, a.Verification = markup, markup, markup, l.Verification
	for text, scripts := range map[string]int{render(b.t, p): 1, renderAnswer(b.t, a): 0} {
		shown := b.openText(text, desk())
		if eval[bool](shown, `"ran" in globalThis`) {
			b.t.Error("a script ran")
		}
		if n := eval[int](shown, `document.querySelectorAll("img, iframe, object, [onerror], [onload], a[href^='javascript:']").length`); n != 0 {
			b.t.Errorf("%d elements came out of names", n)
		}
		if n := eval[int](shown, `document.scripts.length`); n != scripts {
			b.t.Errorf("the page has %d scripts, want %d", n, scripts)
		}
		if said := shown.Complaints(); len(said) > 0 || len(shown.Asked()) != 1 {
			b.t.Errorf("complaints %q, asked for %q", said, shown.Asked())
		}
		if !eval[bool](shown, `document.body.textContent.includes("<script>ran=1</script>")`) {
			b.t.Error("the names can't be read")
		}
	}
}

// answerOf asks a ledger for all that it has.
func answerOf(b *book) *report.Answer {
	b.t.Helper()
	h, l := b.read()
	return &report.Answer{
		Question: "function 0000:13:00.0", Verdict: "4 tenancies on node gpu-node-07, 0 held now", Node: "gpu-node-07",
		Tenancies: h.Tenancies, Neighbors: h.Neighbors(h.Tenancies[:1]), Refusals: h.Refusals, Verification: l.Verification,
	}
}

func renderAnswer(t *testing.T, a *report.Answer) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.WriteAnswer(&b, a); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
