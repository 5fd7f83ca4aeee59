// Package containers says what a node's container runtimes need for pods of the
// RuntimeClass kata-gpu: containerd's or CRI-O's handler, Kata's configuration, the
// placeholder of the pod-resources socket; and what stands against it in the files
// that are there, the kubelet's included. It reads through a [state.Tree] and decides;
// it changes nothing and runs nothing.
//
// What it wants of a file that others write too is the least edit that does it, and
// is wanted only once the files that would result were read again, merged as the
// runtime merges them, and found to differ in nothing else.
package containers
