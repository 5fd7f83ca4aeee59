package audit

import "github.com/kata-vfio/kata-vfio/pkg/terminal"

// Style says how to print for people.
type Style struct {
	// Color puts terminal colours in; the text says the same without.
	Color bool
	// Bridges lists bridges too.
	Bridges bool
}

// paint wraps text in a colour. Padding goes on before: escapes have no width.
func (s Style) paint(color terminal.Color, text string) string {
	return terminal.Paint(s.Color, color, text)
}

// mark and color of a standing: never colour alone.
func (st Standing) mark() string {
	return [...]string{None: " ", Good: "✓", Concern: "!", Bad: "✗"}[st]
}

func (st Standing) color() terminal.Color {
	return [...]terminal.Color{None: terminal.Faint, Good: terminal.Green, Concern: terminal.Yellow, Bad: terminal.Red}[st]
}
