package audit

import "github.com/kata-vfio/kata-vfio/pkg/cli/terminal"

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

// Mark is the standing as one character: never colour alone.
func (st Grade) Mark() string {
	return [...]string{None: " ", Good: "✓", Concern: "!", Bad: "✗"}[st]
}

// Color is the standing as a colour.
func (st Grade) Color() terminal.Color {
	return [...]terminal.Color{None: terminal.Faint, Good: terminal.Green, Concern: terminal.Yellow, Bad: terminal.Red}[st]
}
