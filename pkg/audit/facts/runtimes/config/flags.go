package config

import (
	"slices"
	"strconv"
	"strings"
)

// Option returns the value of the last of the flags on a command line: "--name=value"
// or "--name value". A flag without a value at the line's end has none.
func Option(args []string, flags ...string) (value string, ok bool) {
	for i, arg := range args {
		name, inline, has := strings.Cut(arg, "=")
		switch {
		case !slices.Contains(flags, flagName(name)):
		case has:
			value, ok = inline, true
		case i+1 < len(args):
			value, ok = args[i+1], true
		}
	}
	return value, ok
}

// Switch returns the last value of a boolean flag, as Kubernetes' programs read it:
// alone it means true, and what stands behind it is not its value. One that such a
// program would not start with counts as otherwise.
func Switch(args []string, flag string, otherwise bool) (on, ok bool) {
	for _, arg := range args {
		name, inline, has := strings.Cut(arg, "=")
		if flagName(name) != flag {
			continue
		}
		on, ok = true, true
		if value, err := strconv.ParseBool(inline); has && err == nil {
			on = value
		} else if has {
			on = otherwise
		}
	}
	return on, ok
}

// flagName returns a flag's name as Kubernetes' programs understand it: "_" is "-".
func flagName(name string) string {
	if !strings.HasPrefix(name, "--") {
		return name
	}
	return strings.ReplaceAll(name, "_", "-")
}
