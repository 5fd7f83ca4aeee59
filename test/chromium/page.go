package chromium

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// Page is one tab.
type Page struct {
	b       *Browser
	session string
}

// View says how a page is looked at.
type View struct {
	Width, Height int
	Dark          bool
	// NoScript switches JavaScript off.
	NoScript bool
	// Phone emulates a touch screen of that size.
	Phone bool
}

// Open opens the address in a tab of its own and waits until it is loaded.
func (b *Browser) Open(address string, v View) *Page {
	b.tb.Helper()
	p := &Page{b: b}
	var target struct{ TargetID string }
	p.must("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var attached struct{ SessionID string }
	p.must("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p.session = attached.SessionID
	p.must("Performance.enable", map[string]any{"timeDomain": "threadTicks"}, nil)
	for _, domain := range []string{"Page", "Network", "Runtime", "Log"} {
		p.must(domain+".enable", nil, nil)
	}
	p.Look(v)
	p.must("Emulation.setScriptExecutionDisabled", map[string]any{"value": v.NoScript}, nil)
	p.must("Page.navigate", map[string]any{"url": address}, nil)
	p.wait("Page.loadEventFired")
	return p
}

// Look changes how the page is looked at, except for scripts.
func (p *Page) Look(v View) {
	p.b.tb.Helper()
	p.must("Emulation.setDeviceMetricsOverride", map[string]any{"width": v.Width, "height": v.Height, "deviceScaleFactor": 1, "mobile": v.Phone}, nil)
	scheme := "light"
	if v.Dark {
		scheme = "dark"
	}
	p.must("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Eval runs an expression in the page and decodes what it is into result, if that is not nil. It works with scripts off,
// too.
func (p *Page) Eval(expression string, result any) {
	p.b.tb.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		}
	}
	p.must("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer)
	if e := answer.ExceptionDetails; e != nil {
		p.b.tb.Fatalf("%s: %s %s", expression, e.Text, e.Exception.Description)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(answer.Result.Value, result); err != nil {
		p.b.tb.Fatalf("%s: %v", expression, err)
	}
}

// Screenshot returns the page as a PNG: what is in view, or all of it.
func (p *Page) Screenshot(all bool) []byte {
	p.b.tb.Helper()
	return p.bytes("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": all, "optimizeForSpeed": false})
}

// PDF prints the page.
func (p *Page) PDF() []byte {
	p.b.tb.Helper()
	return p.bytes("Page.printToPDF", map[string]any{"preferCSSPageSize": true, "paperWidth": 8.27, "paperHeight": 11.69, "generateTaggedPDF": false})
}

func (p *Page) bytes(method string, params any) []byte {
	p.b.tb.Helper()
	var answer struct{ Data string }
	p.must(method, params, &answer)
	data, err := base64.StdEncoding.DecodeString(answer.Data)
	if err != nil {
		p.b.tb.Fatal(err)
	}
	return data
}

// Asked returns the addresses that the page has asked for, its own first.
func (p *Page) Asked() []string {
	var list []string
	for _, e := range p.events("Network.requestWillBeSent") {
		var said struct{ Request struct{ URL string } }
		if json.Unmarshal(e, &said) == nil {
			list = append(list, said.Request.URL)
		}
	}
	return list
}

// Complaints returns what the page's scripts threw or wrote to the console, what the browser refused to do, and dialogs.
func (p *Page) Complaints() []string {
	var list []string
	for _, method := range []string{"Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded", "Page.javascriptDialogOpening"} {
		for _, e := range p.events(method) {
			list = append(list, method+": "+string(e))
		}
	}
	return list
}

func (p *Page) must(method string, params, result any) {
	p.b.tb.Helper()
	if err := p.b.call(p.session, method, params, result); err != nil {
		p.b.tb.Fatal(err)
	}
}

func (p *Page) events(method string) []json.RawMessage {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	return p.seen(method)
}

// seen returns the page's events so far. The caller holds the lock.
func (p *Page) seen(method string) []json.RawMessage {
	var list []json.RawMessage
	for _, e := range p.b.events {
		if e.Session == p.session && e.Method == method {
			list = append(list, e.Params)
		}
	}
	return list
}

// wait waits for the first event of the kind.
func (p *Page) wait(method string) {
	p.b.tb.Helper()
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	const dialog = "Page.javascriptDialogOpening" // which holds up the page
	for len(p.seen(method)) == 0 && !p.b.gone {
		if said := p.seen(dialog); len(said) > 0 {
			p.b.tb.Fatalf("the page opened a dialog: %s", said[0])
		}
		p.b.changed.Wait()
	}
	if p.b.gone {
		p.b.tb.Fatalf("Chromium is gone before %s", method)
	}
}

// Print has the page look as it does on paper.
func (p *Page) Print() {
	p.b.tb.Helper()
	p.must("Emulation.setEmulatedMedia", map[string]any{"media": "print", "features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}}}, nil)
}

// Cost returns the processor's time that the page has taken so far, by what for: "TaskDuration" is all of it, for the one
// thread that a page has.
func (p *Page) Cost() map[string]time.Duration {
	p.b.tb.Helper()
	var answer struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	p.must("Performance.getMetrics", nil, &answer)
	cost := map[string]time.Duration{}
	for _, m := range answer.Metrics {
		if strings.HasSuffix(m.Name, "Duration") {
			cost[m.Name] = time.Duration(m.Value * float64(time.Second)).Round(time.Millisecond)
		}
	}
	return cost
}
