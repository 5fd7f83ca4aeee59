#!/bin/sh
# Installs what building and testing kata-vfio needs on a Debian or Ubuntu
# machine, and nothing that is there already. Prints the Go command to use on
# the last line. Safe to run again; says what to do when it can't.
#
#   setup.sh [COMMAND:PACKAGE ...]   installs these packages, too, unless the commands are there
set -eu

say() { printf '%s\n' "$*" >&2; }
die() { say "setup: $*"; exit 1; }

# install PACKAGE...: by apt, as root.
install() {
	command -v apt-get >/dev/null || die "this machine has no apt-get: install $* by hand and run make again"
	[ "$(id -u)" = 0 ] || die "root is needed to install $*: run 'sudo apt-get install $*' and make again"
	say "setup: installing $*"
	export DEBIAN_FRONTEND=noninteractive
	apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1 || {
		apt-get update -q >/dev/null
		apt-get install -y -q --no-install-recommends "$@" >/dev/null
	}
}

# need COMMAND PACKAGE: the package, unless the command is there.
need() {
	command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

# usable GO: whether it is new enough to fetch the toolchain that go.mod names.
usable() {
	version=$(cd / && "$1" env GOVERSION 2>/dev/null) || return 1
	minor=$(printf '%s' "$version" | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
	[ -n "$minor" ] && [ "$minor" -ge 21 ]
}

# find_go prints a usable Go, wherever Debian, Ubuntu or a person put it.
find_go() {
	for go in "$(command -v go || true)" /usr/local/go/bin/go /usr/lib/go-1.*/bin/go; do
		[ -x "$go" ] && usable "$go" && { printf '%s\n' "$go"; return; }
	done
	return 1
}

# install_go installs the newest Go package that can fetch newer toolchains.
# Debian 12's own is too old: its backports have one.
install_go() {
	# shellcheck source=/dev/null
	. /etc/os-release
	if [ "${VERSION_CODENAME:-}" = bookworm ]; then
		# shellcheck disable=SC2016 # apt-get fills in $(SITE)
		mirror=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -m 1 '/debian$' || true)
		[ -n "$mirror" ] || die "no Debian mirror is configured: install Go 1.21 or newer by hand"
		printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s bookworm-backports main\n' "$mirror" \
			>/etc/apt/sources.list.d/kata-vfio-backports.list
		apt-get update -q >/dev/null
		newest=$(apt-cache search --names-only '^golang-1\.[0-9]+-go$' | cut -d' ' -f1 | sort -V | tail -n 1)
		install "$newest"
	else
		install golang-go
	fi
}

missing=
need gcc gcc
need git git
for also in "$@"; do need "${also%%:*}" "${also#*:}"; done
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates"
[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
# shellcheck disable=SC2086 # a list of packages
[ -z "$missing" ] || install $missing
go=$(find_go) || { install_go; go=$(find_go) || die "no Go 1.21 or newer after installing one: install Go by hand"; }
printf '%s\n' "$go"
