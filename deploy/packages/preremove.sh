#!/bin/sh
# Disables the package's units before it is removed, but not before an upgrade.
# The socket's file stays: without it, Kata starts a pod without its device instead of refusing it.
set -e
disable() { # UNIT TARGET
	if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
		systemctl --no-reload disable --now "$1" || echo "kata-vfio: $1 is not disabled: run systemctl disable --now $1" >&2
	fi
	# systemd does not run while an image is built.
	rm -f "${DPKG_ROOT:-}/etc/systemd/system/$2.wants/$1"
}
case "$1" in
remove | 0) # Debian passes a word, RPM the number of versions that remain
	disable kata-vfio-pod-resources.socket sockets.target
	disable kata-vfio-bootstrap-verify.timer timers.target
	;;
esac
