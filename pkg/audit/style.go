package audit

// Style says how to print for people.
type Style struct {
	// Color puts terminal colours in; the text says the same without.
	Color bool
	// Bridges lists bridges too.
	Bridges bool
}

// Terminal colours (ECMA-48 SGR).
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	faint  = "2"
	bold   = "1"
)

// paint wraps text in a colour. Padding goes on before: escapes have no width.
func (s Style) paint(color, text string) string {
	if !s.Color || color == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// mark and color of a standing: never colour alone.
func (st Standing) mark() string {
	return [...]string{None: " ", Good: "✓", Concern: "!", Bad: "✗"}[st]
}

func (st Standing) color() string {
	return [...]string{None: faint, Good: green, Concern: yellow, Bad: red}[st]
}
