#!/bin/sh
# usage: beside.sh LOG COMMAND ...
# Runs a command beside another one: its output goes to a file, and is printed when it ends. SIGTERM ends it.
set -eu
log=$1
shift
"$@" >"$log" 2>&1 &
child=$!
trap 'kill "$child"; wait "$child" || true; exit 143' TERM
rc=0
wait "$child" || rc=$?
cat "$log"
exit "$rc"
