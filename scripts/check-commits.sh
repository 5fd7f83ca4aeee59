#!/bin/sh
# Checks the commits of a range: `package: imperative subject` of at most 72 characters, and no merge commits.
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
	printf '%s\n' "$subject" | grep -Eq '^[a-z0-9][a-z0-9_/.-]*(, [a-z0-9][a-z0-9_/.-]*)*: [a-z].*[^.]$' ||
		report "$short" "the subject is not 'package: imperative subject' without a full stop: $subject"
done
exit $failed
