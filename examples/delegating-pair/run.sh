#!/bin/sh
# An agent delegates to another: the editor gives work to the writer, rests, and continues with the
# writer's result.
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
# Use only the state directory of this script, even inside a turn.
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

say "1. The editor gets a request. Its turn delegates the request to a writer, and ends:"
dormouse enqueue editor "a word on mice" >/dev/null
dormouse tick editor
dormouse get editor status
dormouse explain editor

say "2. There was no writer, so the delegation made one: a child of the editor, with the same agent.toml."
dormouse list
dormouse queue list -a writer

say "3. A command waits until the editor has input. Meanwhile the writer runs its step:"
dormouse await editor --posture has_queued_input --timeout 1h &
waiting=$!
"$DORMOUSE" tick writer
wait "$waiting"

say "4. The result ends the editor's wait and starts its next turn:"
dormouse tick editor
dormouse get editor last_turn.brief

say "5. A stop of the editor also stops the writer while it works for the editor:"
dormouse enqueue editor "a longer word on mice" >/dev/null
"$DORMOUSE" tick editor >/dev/null
dormouse stop editor --reason "closing time" >/dev/null
dormouse list
dormouse task list -a editor --ended
dormouse doctor
