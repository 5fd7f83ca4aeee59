package manager

import (
	"errors"
	"fmt"
	"math"

	"github.com/kata-vfio/kata-vfio/pkg/fabric"
)

// Program is the name of the helper program.
const Program = "kata-vfio-fabric"

// Calls of the helper besides those of [fabric.Manager]. They are for people.
const (
	CallFailed      fabric.Call = "failed"      // lists the devices with failed NVLinks
	CallUnsupported fabric.Call = "unsupported" // lists the partitions that can't be activated now
)

// The exit codes of the helper. With each it writes an Answer.
const (
	ExitSuccess = 0 // Fabric Manager made the call
	ExitRefused = 1 // Fabric Manager or its library answered with another code than success: Answer.Code
	ExitRequest = 2 // the request is wrong; nothing was called
	ExitLibrary = 3 // the library can't be loaded, or the program has no support for it; nothing was called
	ExitAnswer  = 4 // the library's answer is impossible, such as more partitions than the API has room for
)

// Request is what the helper reads from standard input, as JSON.
type Request struct {
	Call fabric.Call `json:"call"`
	// Address is where Fabric Manager's API is: unix:/path/of/socket, tcp:address:port, or vsock:cid:port.
	Address string `json:"address"`
	// TimeoutMS limits the time to connect, in milliseconds. The library limits no call: the caller ends the helper.
	TimeoutMS uint32 `json:"timeoutMs"`
	// ID is the partition of activate and deactivate.
	ID *int `json:"id,omitempty"`
	// IDs are those of setActivated. It may be empty: no partition is active.
	IDs []int `json:"ids,omitzero"`
}

// Answer is what the helper writes to standard output, as JSON.
type Answer struct {
	// Code is the library's code (fmReturn_t); 0 means success.
	Code int `json:"code"`
	// Function is the function of the library that returned Code, if Code is not 0.
	Function string `json:"function,omitempty"`
	// Error is what is wrong, if no function of the library is the reason.
	Error string `json:"error,omitempty"`
	// Partitions is the answer to list.
	Partitions fabric.List `json:"partitions,omitzero"`
	// Failed is the answer to failed.
	Failed []FailedDevice `json:"failed,omitzero"`
	// Unsupported is the answer to unsupported.
	Unsupported []Unsupported `json:"unsupported,omitzero"`
}

// FailedDevice is a GPU or an NVSwitch with failed NVLinks.
type FailedDevice struct {
	Switch  bool   `json:"switch,omitempty"`
	UUID    string `json:"uuid,omitempty"`
	Address string `json:"address,omitempty"`
	Ports   []int  `json:"ports"`
}

// Unsupported is a partition that can't be activated now.
type Unsupported struct {
	ID      int   `json:"id"`
	Modules []int `json:"modules"`
}

// Check returns what is wrong with a request. A request without fault is safe to pass to the library.
func (r *Request) Check() error {
	if _, _, err := fabric.SplitAddress(r.Address); err != nil {
		return err
	}
	if r.TimeoutMS == 0 {
		return errors.New("timeoutMs is missing: the time to connect needs a limit")
	}
	switch r.Call {
	case fabric.CallList, CallFailed, CallUnsupported:
		return r.without(r.ID == nil && r.IDs == nil, "id and ids")
	case fabric.CallActivate, fabric.CallDeactivate:
		if r.ID == nil {
			return fmt.Errorf("call %s needs the id of a partition", r.Call)
		}
		if err := checkIDs([]int{*r.ID}); err != nil {
			return err
		}
		return r.without(r.IDs == nil, "ids")
	case fabric.CallReplay:
		if err := checkIDs(r.IDs); err != nil {
			return err
		}
		return r.without(r.ID == nil, "id")
	default:
		return fmt.Errorf("call %q is none of the helper's", r.Call)
	}
}

func (r *Request) without(is bool, what string) error {
	if is {
		return nil
	}
	return fmt.Errorf("call %s takes no %s", r.Call, what)
}

// checkIDs refuses impossible lists of partitions. NVIDIA's fmpm never ends if a partition is in the list twice.
func checkIDs(ids []int) error {
	if len(ids) > fabric.MaxPartitions {
		return fmt.Errorf("%d partitions are more than the %d of Fabric Manager", len(ids), fabric.MaxPartitions)
	}
	seen := map[int]bool{}
	for _, id := range ids {
		if id < 0 || id > math.MaxUint32 {
			return fmt.Errorf("partition %d is not one of Fabric Manager's numbers", id)
		}
		if seen[id] {
			return fmt.Errorf("partition %d is in the list twice", id)
		}
		seen[id] = true
	}
	return nil
}
