#!/bin/sh
# Two agents, of whom one delegates to the other: the editor asks, sleeps, and is woken by what
# the writer brings.
#
#     examples/delegating-pair/run.sh
#
# Needs jq.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
command -v jq >/dev/null || { echo "delegating-pair: needs jq" >&2; exit 1; }
. "$(dirname -- "$0")/../program.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/delegating-pair.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
# Only what this script makes: no other state directory, no turn that we may be inside of.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW

dormouse() {
    echo "\$ dormouse $*"
    "$DORMOUSE" "$@"
}
say() { printf '\n%s\n' "$*"; }

cp "$here/turn.sh" "$work"
cd "$work"
"$DORMOUSE" init >/dev/null
"$DORMOUSE" create editor --from "$here/agent.toml" >/dev/null
"$DORMOUSE" start editor >/dev/null

say "1. The editor is asked for something. Its turn hands that to a writer, and ends:"
dormouse enqueue editor "a word on mice" >/dev/null
dormouse tick editor
dormouse get editor status
dormouse explain editor

say "2. There was no writer, so one was made: a child of the editor, with the same agent.toml."
dormouse list
dormouse queue list -a writer

say "3. Somebody waits for the editor to have something to do; the writer takes its step meanwhile:"
dormouse await editor --posture has_queued_input --timeout 1h &
waiting=$!
"$DORMOUSE" tick writer
wait "$waiting"

say "4. The result brings the editor back, and ends the wait that it was for:"
dormouse tick editor
dormouse get editor last_turn.brief

say "5. Who stops the editor stops the writer, if it is at work for it:"
dormouse enqueue editor "a longer word on mice" >/dev/null
"$DORMOUSE" tick editor >/dev/null
dormouse stop editor --reason "closing time" >/dev/null
dormouse list
dormouse task list -a editor --ended
dormouse doctor
