package fabric

import (
	"fmt"
	"path"
	"strings"
)

// The kinds of addresses of Fabric Manager's API.
const (
	Unix  = "unix"
	TCP   = "tcp"
	VSock = "vsock"
)

// AddressError says why a text is not an address of Fabric Manager's API.
type AddressError struct{ Address, Why string }

func (e *AddressError) Error() string {
	return fmt.Sprintf("address %q of Fabric Manager %s", e.Address, e.Why)
}

// SplitAddress returns the kind of an address and what NVIDIA's library takes for it: of "unix:/path/of/socket", "tcp:address:port" or
// "vsock:cid:port". Its error is an [AddressError].
func SplitAddress(address string) (kind, rest string, err error) {
	kind, rest, _ = strings.Cut(address, ":")
	// The library has 256 bytes for it, and the kernel 108 for the path of a socket; both end with a zero.
	most := 255
	if kind == Unix {
		most = 107
	}
	why := ""
	switch {
	case kind != Unix && kind != TCP && kind != VSock:
		why = "begins with none of unix:, tcp: and vsock:"
	case rest == "" || len(rest) > most || strings.ContainsRune(rest, 0):
		why = fmt.Sprintf("must have 1 to %d bytes after %q, and no zero byte", most, kind+":")
	case kind == Unix && (!path.IsAbs(rest) || path.Clean(rest) != rest):
		why = "does not name a socket by its absolute path"
	case kind != Unix && !hasPort(rest):
		why = "has no port, as in tcp:127.0.0.1:6666"
	}
	if why != "" {
		return "", "", &AddressError{Address: address, Why: why}
	}
	return kind, rest, nil
}

// hasPort reports whether the text has a host and a port.
func hasPort(text string) bool {
	i := strings.LastIndex(text, ":")
	return i > 0 && i < len(text)-1 && strings.Trim(text[i+1:], "0123456789") == ""
}
