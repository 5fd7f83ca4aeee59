#!/bin/sh
# Before the package is removed, and not upgraded: disable its units.
# The socket's file stays: running pods may need the plugin, and a missing file is worse than one that refuses.
set -e
disable() { # UNIT TARGET
	if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
		systemctl --no-reload disable --now "$1" || echo "kata-vfio: $1 is still there: systemctl disable --now $1" >&2
	fi
	# Where an image is made no systemd runs.
	rm -f "${DPKG_ROOT:-}/etc/systemd/system/$2.wants/$1"
}
case "$1" in
remove | 0) # Debian says so in a word, RPM in the number of versions that stay
	disable kata-vfio-pod-resources.socket sockets.target
	disable kata-vfio-bootstrap-verify.timer timers.target
	;;
esac
