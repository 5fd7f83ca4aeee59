package ledger

import "fmt"

// DamagedError reports the place and kind of a difference between a ledger and the events that were written.
type DamagedError struct {
	File string
	// Line is the line number, from 1; 0 for the file as a whole. Offset is the byte offset of the line. Seq is the number of the event that
	// belongs there; -1 if that is unknown or there is none.
	Line   int
	Offset int64
	Seq    int64
	What   string
}

func (e *DamagedError) Error() string {
	if e.File == "" {
		return fmt.Sprintf("event %d: %s", e.Seq, e.What)
	}
	place := e.File
	if e.Line > 0 {
		place = fmt.Sprintf("%s, line %d", place, e.Line)
	}
	if e.Seq >= 0 {
		place = fmt.Sprintf("%s (event %d)", place, e.Seq)
	}
	return place + ": " + e.What
}
