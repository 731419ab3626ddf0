#!/bin/sh
# A long turn that makes way for something urgent, and continues where it was: a book of six pages
# is at the press, and somebody needs a poster now.
#
#     examples/long-turn/run.sh
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
. "$(dirname -- "$0")/../program.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/long-turn.XXXXXX")
tick=
# A turn ends with the tick that runs it.
trap '[ -z "$tick" ] || kill "$tick" 2>/dev/null || :; wait; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
# Only what this script makes: no other state directory, no turn that we may be inside of.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW
# The turns call dormouse by its name.
PATH=$(dirname -- "$DORMOUSE"):$PATH
export PATH

dormouse() {
    echo "\$ dormouse $*"
    "$DORMOUSE" "$@"
}
say() { printf '\n%s\n' "$*"; }
fail() { echo "long-turn: $*" >&2; exit 1; }
paper() { for sheet in "$@"; do : >"press/paper/$sheet"; done; }

cp "$here/turn.sh" "$here/print.sh" "$work"
cd "$work"
mkdir -p press/paper
"$DORMOUSE" init >/dev/null
for agent in book poster; do
    "$DORMOUSE" create "$agent" --from "$here/agent.toml" >/dev/null
    "$DORMOUSE" start "$agent" >/dev/null
    "$DORMOUSE" enqueue "$agent" "print it" >/dev/null
done

say "1. The book is at the press. There is paper for two pages, so it waits in the middle of the third:"
paper a b
"$DORMOUSE" tick book >book.txt &
tick=$!
until [ -e press/out-of-paper ]; do
    kill -0 "$tick" 2>/dev/null || fail "the book has ended too early: $(cat book.txt)"
    sleep 0.05
done
dormouse get book execution.state

say "2. Somebody needs a poster. There is one press, and the book has it:"
dormouse tick poster

say "3. So the book is asked to make way. It continues for now: a page is in the press."
dormouse preempt book --reason "a poster, now" --grace 1h
dormouse get book execution.state

say "4. With paper the page becomes whole; the turn comes to its safe point, says where it is, and exits:"
paper c d e f g
wait "$tick" || fail "the tick ended with status $?"
tick=
cat book.txt press/sheets
dormouse state book
dormouse explain book

say "5. The poster has the press:"
dormouse tick poster

say "6. And the book continues, in the same attempt, with the page after its last one:"
dormouse resume book
dormouse tick book
cat press/sheets
dormouse run list -a book
dormouse doctor

# Each page once and whole, the poster where it was asked for.
page() { printf '%s, page %s: printed\n' "$1" "$2"; }
{
    for number in 1 2 3; do page book "$number"; done
    page poster 1
    for number in 4 5 6; do page book "$number"; done
} >expected
cmp expected press/sheets || fail "the press has printed something else"
