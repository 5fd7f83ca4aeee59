#!/bin/sh
# Checks the commits of a range: `package: imperative subject` of at most 72 characters, a body that says why for changes of more than
# 20 lines, and no merge commits.
# usage: check-commits.sh RANGE     (origin/main..HEAD)
set -eu
range=${1:?usage: check-commits.sh RANGE}
failed=0
report() {
	echo "$1: $2" >&2
	failed=1
}
for commit in $(git rev-list --reverse "$range"); do
	subject=$(git log -1 --format=%s "$commit")
	short=$(git rev-parse --short "$commit")
	[ "$(git rev-list --parents -1 "$commit" | wc -w)" -le 2 ] || report "$short" "is a merge commit: rebase"
	[ "${#subject}" -le 72 ] || report "$short" "the subject has ${#subject} characters, and 72 are the most: $subject"
	printf '%s\n' "$subject" | grep -Eq '^[A-Za-z0-9.][A-Za-z0-9_/.-]*(, [a-z0-9][a-z0-9_/.-]*)*: [a-z].*[^.]$' ||
		report "$short" "the subject is not 'package: imperative subject' without a full stop: $subject"
	lines=$(git show --numstat --format= "$commit" | awk '{n += $1 + $2} END {print n + 0}')
	body=$(git log -1 --format=%b "$commit" | grep -Evi '^([a-z-]+-by: .*)?$' || true)
	[ "$lines" -le 20 ] || [ -n "$body" ] || report "$short" "it changes $lines lines, and no body says why: $subject"
done
exit $failed
