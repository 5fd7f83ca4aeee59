// Package dropins tests runtimeclass/'s files for containerd and Kata: containerd reads them by its own code. Run it
// with -count=1, since the go command does not see that files outside of a module have changed.
package dropins
