#!/bin/sh
# Before the package is removed for good (not upgraded): the unit that somebody may have enabled is enabled no more.
# The socket's file stays: pods that run may need the plugin behind it, and a missing file is worse than a refusing one.
set -e
unit=kata-vfio-pod-resources.socket
case "$1" in
remove | 0) # Debian says so in a word, RPM in the number of versions that stay
	if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
		systemctl --no-reload disable --now "$unit" || echo "kata-vfio: $unit is still there: systemctl disable --now $unit" >&2
	fi
	# Where an image is made no systemd runs.
	rm -f "${DPKG_ROOT:-}/etc/systemd/system/sockets.target.wants/$unit"
	;;
esac
