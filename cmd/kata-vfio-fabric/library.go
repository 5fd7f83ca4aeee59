//go:build cgo

package main

// #cgo CFLAGS: -Wall -Wextra -Werror
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "library.h"
import "C"

import (
	"unsafe"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/manager"
)

// call loads the library, makes the call and returns the exit code with the answer.
func call(r *manager.Request, path string) (manager.Answer, int) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var l library
	if wrong := C.library_load(name, &l.functions); wrong != nil {
		return manager.Answer{Error: "load Fabric Manager's library: " + C.GoString(wrong)}, manager.ExitLibrary
	}
	answer := l.session(r)
	switch {
	case answer.Error != "":
		return answer, manager.ExitAnswer
	case answer.Code != 0:
		return answer, manager.ExitRefused
	}
	return answer, manager.ExitSuccess
}

// library is Fabric Manager's library, with a connection.
type library struct {
	functions C.struct_library
	handle    unsafe.Pointer
}

// session connects, makes the call, and disconnects. The answer is that of the call. An error when it disconnects does not
// change the answer.
func (l *library) session(r *manager.Request) manager.Answer {
	if code := C.library_init(&l.functions); code != 0 {
		return refused("fmLibInit", code)
	}
	defer C.library_shutdown(&l.functions)
	if code := l.connect(r); code != 0 {
		return refused("fmConnect", code)
	}
	defer func() { C.library_disconnect(&l.functions, l.handle) }()
	return l.make(r)
}

func refused(function string, code C.int) manager.Answer {
	if code == 0 {
		return manager.Answer{}
	}
	return manager.Answer{Code: int(code), Function: function}
}

func (l *library) connect(r *manager.Request) C.int {
	kind, rest, err := fabric.SplitAddress(r.Address)
	if err != nil { // Check has refused such a request
		return -1
	}
	kinds := map[string]C.uint32_t{fabric.TCP: C.ADDRESS_INET, fabric.Unix: C.ADDRESS_UNIX, fabric.VSock: C.ADDRESS_VSOCK}
	address := C.CString(rest)
	defer C.free(unsafe.Pointer(address))
	return C.library_connect(&l.functions, address, kinds[kind], C.uint32_t(r.TimeoutMS), &l.handle)
}

func (l *library) make(r *manager.Request) manager.Answer {
	switch r.Call {
	case fabric.CallList:
		return l.partitions()
	case fabric.CallActivate:
		return refused("fmActivateFabricPartition", C.library_activate(&l.functions, l.handle, C.uint32_t(*r.ID)))
	case fabric.CallDeactivate:
		return refused("fmDeactivateFabricPartition", C.library_deactivate(&l.functions, l.handle, C.uint32_t(*r.ID)))
	case fabric.CallReplay:
		list := C.struct_activated{count: C.uint32_t(len(r.IDs))}
		for i, id := range r.IDs {
			list.ids[i] = C.uint32_t(id)
		}
		return refused("fmSetActivatedFabricPartitions", C.library_set_activated(&l.functions, l.handle, &list))
	case manager.CallFailed:
		return l.failed()
	default: // Check refuses all other calls
		return l.unsupported()
	}
}
