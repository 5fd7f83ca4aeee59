package facts

import "github.com/kata-vfio/kata-vfio/pkg/sysfs/kernelargs"

// Argument is one value that a kernel command line gives a parameter.
type Argument struct {
	Value string
	// Line is the command line that it stands in: that of the running kernel, or one
	// that is configured for later boots.
	Line Fact
}

// RunningArguments returns the values that the running kernel's command line gives
// a parameter, in order.
func (n *Node) RunningArguments(name string) []Argument {
	return argumentsOf(n.Cmdline(), name)
}

// NextArguments returns the values that the command lines of later boots give a
// parameter; see [Node.BootFiles].
func (n *Node) NextArguments(name string) []Argument {
	var all []Argument
	for _, line := range n.BootFiles() {
		all = append(all, argumentsOf(line, name)...)
	}
	return all
}

func argumentsOf(line Fact, name string) []Argument {
	var all []Argument
	for _, value := range kernelargs.Values(line.Value, name) {
		all = append(all, Argument{value, line})
	}
	return all
}
