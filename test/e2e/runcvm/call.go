package main

import "strings"

// call is what runcvm needs to know of a call of runc.
type call struct {
	command, bundle, id, log string
}

// parse reads those of runc's arguments that runcvm needs. It leaves all others to runc.
func parse(args []string) call {
	var c call
	for i := 0; i < len(args); i++ {
		flag, value, joined := strings.Cut(args[i], "=")
		switch {
		case !strings.HasPrefix(flag, "-"):
			c.word(args[i])
			continue
		case !joined && takesValue(flag) && i+1 < len(args):
			i++
			value = args[i]
		}
		switch flag {
		case "--log":
			c.log = value
		case "--bundle", "-b":
			c.bundle = value
		}
	}
	return c
}

// word takes an argument that is not a flag: the command, then the container's ID.
func (c *call) word(text string) {
	switch {
	case c.command == "":
		c.command = text
	case c.id == "":
		c.id = text
	}
}

// takesValue tells runc's flags with a value from those without, for the commands that containerd calls.
func takesValue(flag string) bool {
	switch flag {
	case "--root", "--log", "--log-format", "--bundle", "-b", "--pid-file", "--console-socket", "--pidfd-socket",
		"--preserve-fds", "--process", "-p", "--criu", "--rootless", "--format":
		return true
	default:
		return false
	}
}
