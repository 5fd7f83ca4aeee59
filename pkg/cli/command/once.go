package command

import (
	"errors"

	"github.com/spf13/pflag"
)

// OnceVarP adds a flag for one text that may be given once. With two files, an ordinary flag would take the last one, and nobody would
// notice that the first does not count.
func OnceVarP(flags *pflag.FlagSet, to *string, name, shorthand, usage string) {
	flags.VarP(&once{to: to}, name, shorthand, usage)
}

// once is the value of a flag that may be given once.
type once struct {
	to    *string
	given bool
}

// String implements [pflag.Value].
func (o *once) String() string {
	if o.to == nil { // pflag asks a zero value for the default
		return ""
	}
	return *o.to
}

// Set implements [pflag.Value].
func (o *once) Set(text string) error {
	if o.given {
		return errors.New("the flag is given twice, and takes one")
	}
	*o.to, o.given = text, true
	return nil
}

// Type implements [pflag.Value].
func (o *once) Type() string { return "string" }
