// Package runtimes tells what the container runtimes of a node are set up to do:
// the handlers of containerd and CRI-O, NRI, and Kata's configuration for each
// handler, as their own loaders would have it of the files on disk. Each setting
// keeps the file that it comes from.
package runtimes
