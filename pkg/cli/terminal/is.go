package terminal

import (
	"io"
	"os"
)

// Is reports whether w is a terminal, so that somebody looks at it now.
func Is(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Colorful reports whether w is a terminal whose user has not asked for plain
// text (https://no-color.org).
func Colorful(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && Is(w)
}
