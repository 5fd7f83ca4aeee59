//go:build cgo

package main

// #include "library.h"
import "C"

import (
	"fmt"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
	"github.com/kata-vfio/kata-vfio/pkg/fabric/manager"
)

// partitions lists the partitions. It compares each count of the library with the size of the library's arrays before it uses
// the count.
func (l *library) partitions() manager.Answer {
	var got C.struct_partitions
	const function = "fmGetSupportedFabricPartitions"
	if code := C.library_partitions(&l.functions, l.handle, &got); code != 0 {
		return refused(function, code)
	}
	if got.count > C.MAX_PARTITIONS {
		return impossible(function, "%d partitions", got.count)
	}
	answer := manager.Answer{Partitions: fabric.List{}}
	for i := range got.list[:got.count] {
		p := &got.list[i]
		if p.gpu_count > C.MAX_GPUS {
			return impossible(function, "partition %d of %d GPUs", p.id, p.gpu_count)
		}
		one := fabric.Partition{ID: int(p.id), Active: p.is_active != 0, GPUs: []fabric.GPU{}}
		for j := range p.gpus[:p.gpu_count] {
			one.GPUs = append(one.GPUs, gpu(&p.gpus[j]))
		}
		answer.Partitions = append(answer.Partitions, one)
	}
	return answer
}

func gpu(g *C.struct_gpu) fabric.GPU {
	return fabric.GPU{
		Module: int(g.physical_id), UUID: text(g.uuid[:]), Address: text(g.bus_id[:]),
		Links: int(g.links), MaxLinks: int(g.most_links), LineRate: int(g.line_rate_mbps),
	}
}

func (l *library) failed() manager.Answer {
	var got C.struct_failed
	const function = "fmGetNvlinkFailedDevices"
	if code := C.library_failed(&l.functions, l.handle, &got); code != 0 {
		return refused(function, code)
	}
	if got.gpu_count > C.MAX_GPUS || got.switch_count > C.MAX_SWITCHES {
		return impossible(function, "%d GPUs and %d NVSwitches", got.gpu_count, got.switch_count)
	}
	answer := manager.Answer{Failed: []manager.FailedDevice{}}
	add := func(devices []C.struct_failed_device, isSwitch bool) bool {
		for i := range devices {
			d := &devices[i]
			if d.port_count > C.MAX_PORTS {
				answer = impossible(function, "a device with %d failed ports", d.port_count)
				return false
			}
			answer.Failed = append(answer.Failed, manager.FailedDevice{Switch: isSwitch, UUID: text(d.uuid[:]), Address: text(d.bus_id[:]), Ports: numbers(d.ports[:d.port_count])})
		}
		return true
	}
	if add(got.gpus[:got.gpu_count], false) {
		add(got.switches[:got.switch_count], true)
	}
	return answer
}

func (l *library) unsupported() manager.Answer {
	var got C.struct_unsupported
	const function = "fmGetUnsupportedFabricPartitions"
	if code := C.library_unsupported(&l.functions, l.handle, &got); code != 0 {
		return refused(function, code)
	}
	if got.count > C.MAX_PARTITIONS {
		return impossible(function, "%d partitions", got.count)
	}
	answer := manager.Answer{Unsupported: []manager.Unsupported{}}
	for i := range got.list[:got.count] {
		p := &got.list[i]
		if p.gpu_count > C.MAX_GPUS {
			return impossible(function, "partition %d of %d GPUs", p.id, p.gpu_count)
		}
		answer.Unsupported = append(answer.Unsupported, manager.Unsupported{ID: int(p.id), Modules: numbers(p.physical_ids[:p.gpu_count])})
	}
	return answer
}

// impossible returns the answer if the library returned a count that its own arrays have no room for.
func impossible(function, format string, args ...any) manager.Answer {
	return manager.Answer{
		Function: function,
		Error:    function + " listed " + fmt.Sprintf(format, args...) + ", which is more than the library has room for: is it of another version than Fabric Manager?",
	}
}

// text returns a field of characters, up to its first zero. A full field has none.
func text(field []C.char) string {
	return C.GoStringN(&field[0], C.int(length(field)))
}

func length(field []C.char) int {
	for i, c := range field {
		if c == 0 {
			return i
		}
	}
	return len(field)
}

func numbers(list []C.uint32_t) []int {
	all := make([]int, len(list))
	for i, n := range list {
		all[i] = int(n)
	}
	return all
}
