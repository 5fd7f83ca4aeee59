package config

import "time"

// ShimCleanup is the timeout of containerd within which `delete` of a shim that has ended
// must have cleaned up after it; containerd kills it then.
const ShimCleanup = "io.containerd.timeout.shim.cleanup"

// Timeout returns one of containerd's timeouts. where is the file that would set it.
func (t Table) Timeout(where, name string) Setting { return t.Sub("timeouts").Setting(where, name) }

// Seconds returns a duration as containerd reads it, "1m30s"; false where it is not set
// or is none, with which containerd does not start.
func (s Setting) Seconds() (float64, bool) {
	d, err := time.ParseDuration(s.Text())
	return d.Seconds(), err == nil
}
