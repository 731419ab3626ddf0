#!/bin/sh
# A long turn yields to an urgent one, and continues later: the agent `book` prints six pages, and
# the agent `poster` needs the same press at once.
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
# Use only the state directory of this script, even inside a turn.
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

say "1. The book's turn prints. There is paper for two pages, so it waits in the middle of the third:"
paper a b
"$DORMOUSE" tick book >book.txt &
tick=$!
until [ -e press/out-of-paper ]; do
    kill -0 "$tick" 2>/dev/null || fail "the book has ended too early: $(cat book.txt)"
    sleep 0.05
done
dormouse get book execution.state

say "2. A poster is urgent, but the book's turn occupies the press:"
dormouse tick poster

say "3. The operator asks the book's turn to yield. It first finishes its page, in a critical section:"
dormouse preempt book --reason "a poster, now" --grace 1h
dormouse get book execution.state

say "4. With more paper the turn finishes the page, reaches its safe point, saves the page number, and exits:"
paper c d e f g
wait "$tick" || fail "the tick ended with status $?"
tick=
cat book.txt press/sheets
dormouse state book
dormouse explain book

say "5. Now the poster's turn can use the press:"
dormouse tick poster

say "6. The book continues with its next page, in the same attempt:"
dormouse resume book
dormouse tick book
cat press/sheets
dormouse run list -a book
dormouse doctor

# Each page was printed once and as a whole, and the poster between pages 3 and 4.
page() { printf '%s, page %s: printed\n' "$1" "$2"; }
{
    for number in 1 2 3; do page book "$number"; done
    page poster 1
    for number in 4 5 6; do page book "$number"; done
} >expected
cmp expected press/sheets || fail "the press has printed something else"
