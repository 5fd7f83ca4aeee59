#!/bin/sh
# Makes a node fit for kata-vfio: for cloud-init, an image build, or by hand. It finds kata-vfio-bootstrap or fetches it
# by its checksum, runs `apply`, and prints the next step. It may run any number of times, waits for nothing and never
# reboots.
set -eu

name=kata-vfio-bootstrap
store=${KATA_VFIO_BIN_DIR:-/var/lib/kata-vfio/bin}
binary='' url='' sum='' strict=no partial=''

fail() {
	echo "bootstrap-node.sh: $1" >&2
	exit "${2:-1}"
}

usage() { # here, since piped into a shell the script is no file to read it from
	cat <<-'END'
	bootstrap-node.sh [--binary FILE] [--url URL] [--sha256 SUM] [--strict] [-- ARGUMENTS OF apply...]

	  --binary FILE   the program to run; else that in PATH, else that beside this script (where it is called by a path
	                  with a slash), else that at the URL
	  --url URL       where to fetch the program from, with --sha256: kata-vfio-bootstrap-linux-ARCH of a release, no archive
	  --sha256 SUM    what the program must be, wherever it comes from
	  --strict        end with apply's own exit code, 3 where it changed the node; otherwise "reboot needed" (4) is
	                  success, as callers such as cloud-init expect

	Example:  bootstrap-node.sh --url https://example.org/kata-vfio-bootstrap-linux-amd64 --sha256 0123... -- -f /etc/kata-vfio/blueprint.yaml

	The fetched program stays in /var/lib/kata-vfio/bin: the next run fetches nothing, and revert needs it.
	END
}

value() { # of a flag: how many arguments are left, the flag, its value
	[ "$1" -ge 2 ] || fail "$2 wants a value" 2
	# A variable that is not set where it should be must not switch the check off.
	[ -n "$3" ] || fail "the value of $2 is empty" 2
}

while [ $# -gt 0 ]; do
	case $1 in
	--binary) value $# "$1" "${2-}"; binary=$2; shift 2 ;;
	--url) value $# "$1" "${2-}"; url=$2; shift 2 ;;
	--sha256) value $# "$1" "${2-}"; sum=$2; shift 2 ;;
	--strict) strict=yes; shift ;;
	--help | -h) usage; exit 0 ;;
	--) shift; break ;;
	*) fail "unknown argument $1; see --help. Arguments of apply go behind --" 2 ;;
	esac
done

# verified says whether a file has the checksum that was asked for, if any was.
verified() {
	[ -n "$sum" ] || return 0
	printf '%s  %s\n' "$sum" "$1" | sha256sum -c - >/dev/null 2>&1
}

# fetch brings the program into the store, whole or not at all.
fetch() {
	[ -n "$sum" ] || fail "--url wants --sha256 too: what is fetched is run as root" 2
	binary=$store/$name
	if [ -x "$binary" ] && verified "$binary"; then
		return
	fi
	mkdir -p "$store"
	partial=$(mktemp "$store/.$name.XXXXXX")
	trap 'rm -f "$partial"' EXIT
	trap 'exit 1' HUP INT TERM
	if command -v curl >/dev/null 2>&1; then
		curl --fail --silent --show-error --location --retry 3 --max-time 300 --output "$partial" "$url" || fail "can't fetch $url"
	elif command -v wget >/dev/null 2>&1; then
		wget -q -T 60 -t 3 -O "$partial" "$url" || fail "can't fetch $url"
	else
		fail "there is neither curl nor wget to fetch $url with"
	fi
	verified "$partial" || fail "what is at $url does not have the checksum $sum; it was not run"
	chmod 0755 "$partial"
	mv "$partial" "$binary"
}

if [ -z "$binary" ]; then
	beside=''
	case $0 in
	*/*) beside=${0%/*}/$name ;; # piped into a shell there is no "beside", and the working directory is anybody's
	esac
	if found=$(command -v "$name" 2>/dev/null) && verified "$found"; then
		binary=$found
	elif [ -n "$beside" ] && [ -x "$beside" ] && verified "$beside"; then
		binary=$beside
	elif [ -n "$url" ]; then
		fetch
	else
		fail "there is no $name (with that checksum, if one was given) in PATH or beside this script (called by a path with a slash); give --binary, or --url and --sha256"
	fi
fi
if [ ! -f "$binary" ] || [ ! -x "$binary" ]; then
	fail "$binary is not a program"
fi
verified "$binary" || fail "$binary does not have the checksum $sum; it was not run"

# image says which image's root is in the arguments of apply; nothing for the node's own.
image() {
	root=''
	while [ $# -gt 0 ]; do
		case $1 in
		--root) root=${2-} ;;
		--root=*) root=${1#--root=} ;;
		esac
		shift
	done
	[ "$root" = / ] || echo "$root"
}

# lacking says what an image needs for that, if it has no program yet. It is put there by whoever makes the image: this one is for this
# machine's processor, and would be in the way of a revert that leaves the image as it was.
lacking() {
	for dir in usr/bin usr/local/bin usr/local/sbin var/lib/kata-vfio/bin; do
		[ ! -x "$1/$dir/$name" ] || return 0
	done
	echo " The image has no $name yet: put a release's package in, or its program at $1/usr/local/sbin/$name; where the chart runs bootstrap, its pod has one."
}

# next prints the next step to standard error: another program may read standard output.
next() { echo "Next: $1" >&2; }

echo "bootstrap-node.sh: running $binary apply" >&2
image=$(image "$@")
code=0
if [ "$strict" = yes ]; then
	set -- --detailed-exitcode "$@"
fi
"$binary" apply "$@" || code=$?
case $code:$image in
0: | 3:) next "$binary verify; then install the chart (deploy/README.md)." ;;
4:) next "reboot the node, then $binary verify." ;;
0:* | 3:* | 4:*) next "perform the manual steps above, if any; then start $image as a node, and run $name verify there.$(lacking "$image")" ;;
5:*) next "fix the problems above, then run this again." ;;
*) ;;
esac
if [ "$strict" = no ] && [ "$code" = 4 ]; then
	code=0
fi
exit "$code"
