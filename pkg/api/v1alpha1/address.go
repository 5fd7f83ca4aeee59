package v1alpha1

import (
	"strconv"
	"strings"
)

// unicastMAC reports whether text is a MAC address that one function may
// have: six octets, the group bit clear, not all zero. (Package net, which
// parses them too, reaches the network.)
func unicastMAC(text string) bool {
	mac, ok := octets(text, 6)
	return ok && mac[0]&1 == 0 && !all(mac, 0)
}

// checkGUID notes a problem unless text is empty (not said) or a GUID that a
// port may have: not zero, nor all ones, which stands for none.
func checkGUID(p *problems, path, text string) {
	if guid, ok := octets(text, 8); text != "" && (!ok || all(guid, 0) || all(guid, 0xff)) {
		p.add(path, "%s is not a GUID; want eight pairs of hexadecimal digits such as 02:00:5e:10:00:00:00:01", show(text))
	}
}

// octets reads n pairs of hexadecimal digits with colons between them.
func octets(text string, n int) ([]uint8, bool) {
	pairs := strings.Split(text, ":")
	if len(pairs) != n {
		return nil, false
	}
	read := make([]uint8, n)
	for i, pair := range pairs {
		octet, err := strconv.ParseUint(pair, 16, 8)
		if err != nil || len(pair) != 2 {
			return nil, false
		}
		read[i] = uint8(octet)
	}
	return read, true
}

func all(octets []uint8, value uint8) bool {
	for _, o := range octets {
		if o != value {
			return false
		}
	}
	return true
}
