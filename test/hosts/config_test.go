package hosts_test

import (
	"encoding/binary"
	"strconv"
	"strings"
)

const (
	configSize = 4096
	// extendedAt is where extended capabilities begin.
	extendedAt = 0x100
)

// config is the function's configuration space, with as many bytes as can be read.
func (f *function) config() (string, error) {
	size, err := strconv.Atoi(f.or("config", strconv.Itoa(configSize)))
	if err != nil {
		return "", err
	}
	if f.has("dead") {
		return strings.Repeat("\xff", size), nil
	}
	c := make([]byte, configSize)
	f.header(c)
	f.capabilities(c)
	if err := f.extended(c); err != nil {
		return "", err
	}
	return string(c[:size]), nil
}

func (f *function) header(c []byte) {
	command, kind := uint16(0x0406), byte(0)
	if f.bridge() {
		command, kind = 0x0007, 1
	}
	if f.multi {
		kind |= 0x80
	}
	binary.LittleEndian.PutUint16(c, f.vendor)
	binary.LittleEndian.PutUint16(c[2:], f.model)
	binary.LittleEndian.PutUint16(c[4:], command)
	c[6], c[8], c[9], c[10], c[11] = 0x10, 0xa1, byte(f.class), byte(f.class>>8), byte(f.class>>16)
	c[0x0e], c[0x34] = kind, 0x40
}

// capabilities are PCI Express at 40, power management at 60 and MSI-X, in use, at 70.
func (f *function) capabilities(c []byte) {
	const extendedTags, flr = 0x8000, 1 << 28
	device := uint32(extendedTags)
	if strings.Contains(f.resets(), "flr") {
		device |= flr
	}
	c[0x40], c[0x41] = 0x10, 0x60
	binary.LittleEndian.PutUint16(c[0x42:], uint16(f.kind)<<4|2)
	binary.LittleEndian.PutUint32(c[0x44:], device)
	copy(c[0x60:], []byte{0x01, 0x70, 0x03, 0, 0x08, 0})
	copy(c[0x70:], []byte{0x11, 0, 0x07, 0x80})
}

// extended are ACS and ATS, one after the other. A port can have everything that its control register can switch on; an endpoint whose
// control is 0 has nothing to switch on.
func (f *function) extended(c []byte) error {
	const acs, ats, step = 0x0d, 0x0f, 0x40
	at := extendedAt
	add := func(id uint32, capability, control uint16) {
		if at > extendedAt {
			c[at-step+3] = byte(at >> 4)
			c[at-step+2] |= byte(at << 4)
		}
		binary.LittleEndian.PutUint32(c[at:], id|1<<16)
		binary.LittleEndian.PutUint16(c[at+4:], capability)
		binary.LittleEndian.PutUint16(c[at+6:], control)
		at += step
	}
	if value, ok := f.words["acs"]; ok {
		control, err := strconv.ParseUint(value, 16, 16)
		if err != nil {
			return err
		}
		capability := uint16(0x5f)
		if control == 0 && !f.bridge() {
			capability = 0
		}
		add(acs, capability, uint16(control))
	}
	if f.has("ats") {
		add(ats, 0x60, 0x8000)
	}
	return nil
}
