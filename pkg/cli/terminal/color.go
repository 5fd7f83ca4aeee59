package terminal

// Color is a terminal colour (ECMA-48 SGR).
type Color string

// Colors. The empty one is none.
const (
	Bold   Color = "1"
	Faint  Color = "2"
	Red    Color = "31"
	Green  Color = "32"
	Yellow Color = "33"
)

// Paint wraps text in a colour, if on. Padding goes on before: escapes have no
// width.
func Paint(on bool, c Color, text string) string {
	if !on || c == "" {
		return text
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[0m"
}
