// Command kata-vfio-plugin is the node's side of kata-vfio: the DRA plugin
// that prepares claims for the kubelet, and the same by hand.
package main

import "github.com/kata-vfio/kata-vfio/pkg/cli/command"

func main() { command.Main(command.Tree(newCommand), fail) }
