//go:build !cgo

package main

import "github.com/kata-vfio/kata-vfio/pkg/fabric/manager"

// call says that this program is of no use: a program without cgo loads no library.
func call(*manager.Request, string) (manager.Answer, int) {
	const why = "this program was built with CGO_ENABLED=0, so it can't load Fabric Manager's library: build it with `make fabric`"
	return manager.Answer{Error: why}, manager.ExitLibrary
}
