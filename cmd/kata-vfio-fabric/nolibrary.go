//go:build !cgo

package main

import "github.com/kata-vfio/kata-vfio/pkg/fabric/manager"

// call returns an error, because a program that was built without cgo can't load a library.
func call(*manager.Request, string) (manager.Answer, int) {
	const why = "this program was built with CGO_ENABLED=0, so it can't load Fabric Manager's library: build it with `make fabric`"
	return manager.Answer{Error: why}, manager.ExitLibrary
}
