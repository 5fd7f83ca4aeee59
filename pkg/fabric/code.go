package fabric

import (
	"fmt"
	"strconv"
)

// Code is what Fabric Manager returns (fmReturn_t). Success is 0.
type Code int

// Codes of the API.
const (
	BadParameter       Code = -1
	GenericError       Code = -2
	NotSupported       Code = -3
	Uninitialized      Code = -4
	Timeout            Code = -5
	VersionMismatch    Code = -6
	InUse              Code = -7
	NotConfigured      Code = -8
	ConnectionNotValid Code = -9
	NVLinkError        Code = -10
)

// String returns the name in the API, "FM_ST_IN_USE", or the number.
func (c Code) String() string {
	names := [...]string{
		"FM_ST_SUCCESS", "FM_ST_BADPARAM", "FM_ST_GENERIC_ERROR", "FM_ST_NOT_SUPPORTED", "FM_ST_UNINITIALIZED", "FM_ST_TIMEOUT",
		"FM_ST_VERSION_MISMATCH", "FM_ST_IN_USE", "FM_ST_NOT_CONFIGURED", "FM_ST_CONNECTION_NOT_VALID", "FM_ST_NVLINK_ERROR",
	}
	if i := -int(c); i >= 0 && i < len(names) {
		return names[i]
	}
	return strconv.Itoa(int(c))
}

// Call is a call of the API.
type Call string

// Calls. Activation and deactivation change one partition; Replay is fmSetActivatedFabricPartitions.
const (
	CallList       Call = "list"
	CallActivate   Call = "activate"
	CallDeactivate Call = "deactivate"
	CallReplay     Call = "setActivated"
)

// CodeError is an answer of Fabric Manager that is not success.
type CodeError struct {
	Call Call
	Code Code
}

func (e *CodeError) Error() string {
	return fmt.Sprintf("Fabric Manager answers %s with %s: %s", e.Call, e.Code, e.Code.meaning())
}

// meaning returns what a code means, and what to do about it.
func (c Code) meaning() string {
	switch c {
	case BadParameter:
		return "it does not know the partition; its list may have changed since it was read"
	case NotSupported:
		return "it runs without partitions; set FABRIC_MODE=1 in fabricmanager.cfg and restart it while no VM has a GPU"
	case Uninitialized:
		return "the partition is not active, or Fabric Manager waits for the list of active partitions after a restart"
	case Timeout:
		return "it did not finish in time"
	case VersionMismatch:
		return "its API library has another version; install libnvfm, nvidia-fabricmanager and the driver of one version"
	case InUse:
		return "the partition is active already, or one of its GPUs is in another active one"
	case NotConfigured:
		return "it is starting"
	case ConnectionNotValid:
		return "it is not reachable; `systemctl status nvidia-fabricmanager` says why"
	case NVLinkError:
		return "the NVLinks of a GPU did not train; the kernel's log has SXid or Xid lines"
	case GenericError:
	}
	return "its log (/var/log/fabricmanager.log) says why"
}

// Remedy is what follows from a code.
type Remedy int

// Remedies.
const (
	// Refuse: the call fails, and will fail again until a person has acted.
	Refuse Remedy = iota
	// Done: the state that the call should reach exists already.
	Done
	// Compare: the list shows whether the state that the call should reach exists already, or which partition is in the way.
	Compare
	// Repeat: undo what was half done, reset the GPUs, and try once more.
	Repeat
	// Wait: Fabric Manager is not ready, and changes nothing until it is.
	Wait
)

// After returns the remedy for a code that a call returned.
func (c Code) After(call Call) Remedy {
	switch c {
	case NotConfigured, ConnectionNotValid:
		return Wait
	case Uninitialized:
		if call == CallDeactivate {
			return Done
		}
		return Wait
	case InUse:
		return Compare
	case Timeout, NVLinkError:
		if call == CallActivate {
			return Repeat
		}
	case BadParameter, GenericError, NotSupported, VersionMismatch:
	}
	return Refuse
}
