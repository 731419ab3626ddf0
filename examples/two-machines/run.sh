#!/bin/sh
# Two machines tick one repository. Each message gets one turn, on one of the machines.
#
#     sh examples/two-machines/run.sh
#
# Builds the program first, unless DORMOUSE names one.
set -eu

. "$(dirname -- "$0")/../program.sh"
export DORMOUSE

work=$(mktemp -d "${TMPDIR:-/tmp}/dormouse-two-machines.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work"
# Use only the state directory of this script, even inside a turn.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW
GIT_AUTHOR_NAME=example GIT_AUTHOR_EMAIL=example@example.org
GIT_COMMITTER_NAME=example GIT_COMMITTER_EMAIL=example@example.org
GIT_CONFIG_NOSYSTEM=1 HOME=$work
export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_CONFIG_NOSYSTEM HOME

say() { printf '\n%s\n' "$*"; }
on() { at=$1; shift; printf '%s$ dormouse %s\n' "$at" "$*"; (cd "$at" && "$DORMOUSE" "$@"); }

say "1. A repository with two agents, and a clone of it on each of two machines."
git init --quiet --bare --initial-branch=main remote.git
git clone --quiet remote.git one 2>/dev/null
(
    cd one
    git switch --quiet -c main 2>/dev/null || true
    "$DORMOUSE" init -q
    for agent in builder writer; do
        # Every turn prints the name of its machine.
        "$DORMOUSE" create "$agent" -q --shell 'echo "$DORMOUSE_MESSAGE" >> "$DORMOUSE_DIR/../../turns"; echo "done on $(basename "$(dirname "$DORMOUSE_DIR")")"'
        "$DORMOUSE" start "$agent" -q
    done
    git add .dormouse
    git commit --quiet -m "two agents"
    git push --quiet -u origin main
)
git clone --quiet remote.git two

say "2. Each machine gets messages, and sync exchanges them."
for number in 1 2 3; do
    on one enqueue builder "part $number" -q >> said
    on two enqueue writer "page $number" -q >> said
done
on one sync
on two sync

say "3. Both tick at the same time, until nothing is left to do."
on one tick --all --until-idle --push > first 2>&1 &
on two tick --all --until-idle --push > second 2>&1
wait
on one tick --all --until-idle --push > /dev/null
on two sync -q

say "4. Each message got one turn, on one of the machines."
printf '%s turns of %s messages\n' "$(wc -l < turns | tr -d ' ')" "$(sort -u turns | wc -l | tr -d ' ')"
on two briefs builder | sed 's/ on [a-z]*$/ on one of them/'

say "5. Both clones have the same records, without a fault."
on one sync -q
on two sync -q
test "$(git -C one rev-parse HEAD)" = "$(git -C two rev-parse HEAD)"
on one doctor
on two doctor
