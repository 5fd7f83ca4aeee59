#!/bin/sh
# Makes the release of the last commit twice and compares all bytes: once as it comes, once in another directory, with
# an empty build cache, other permissions and another time zone. What differs is named, and left to look at.
set -eu

dir=$(mktemp -d "${TMPDIR:-/tmp}/release-check-XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM

# release CLONE: makes the release of this tree's last commit in a clone.
release() {
	git clone -q --no-hardlinks . "$1"
	began=$(date +%s)
	make --no-print-directory -C "$1" release DEV=
	echo "release-check: $(($(date +%s) - began)) s in $1"
}

release "$dir/here"
(
	umask 077
	export TZ=Pacific/Auckland GOCACHE="$dir/cache" GOFLAGS=-p=2
	release "$dir/somewhere/else/entirely"
)
if ! diff -r "$dir/here/bin/release" "$dir/somewhere/else/entirely/bin/release"; then
	trap - EXIT
	echo "release-check: the two differ; they are in $dir" >&2
	exit 1
fi
count=$(find "$dir/here/bin/release" -type f | wc -l)
size=$(du -sm "$dir/here/bin/release" | cut -f1)
echo "release-check: two builds, $count files, $size MiB: the same bytes"
