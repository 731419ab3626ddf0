#!/bin/sh
# One repository that two machines tick: each message is dealt with once, whoever is faster.
#
#     sh examples/two-machines/run.sh
#
# Builds the program first. Set DORMOUSE to use one that is there already.
set -eu

. "$(dirname -- "$0")/../program.sh"
export DORMOUSE

work=$(mktemp -d "${TMPDIR:-/tmp}/dormouse-two-machines.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work"
# Only what this script makes: no other state directory, no turn that we may be inside of.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW
GIT_AUTHOR_NAME=example GIT_AUTHOR_EMAIL=example@example.org
GIT_COMMITTER_NAME=example GIT_COMMITTER_EMAIL=example@example.org
GIT_CONFIG_NOSYSTEM=1 HOME=$work
export GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL GIT_CONFIG_NOSYSTEM HOME

say() { printf '\n%s\n' "$*"; }
on() { at=$1; shift; printf '%s$ dormouse %s\n' "$at" "$*"; (cd "$at" && "$DORMOUSE" "$@"); }

say "1. A repository with two agents, and two machines that have a clone of it."
git init --quiet --bare --initial-branch=main remote.git
git clone --quiet remote.git one 2>/dev/null
(
    cd one
    git switch --quiet -c main 2>/dev/null || true
    "$DORMOUSE" init -q
    for agent in builder writer; do
        # Every turn says on which machine it ran.
        "$DORMOUSE" create "$agent" -q --shell 'echo "$DORMOUSE_MESSAGE" >> "$DORMOUSE_DIR/../../turns"; echo "done on $(basename "$(dirname "$DORMOUSE_DIR")")"'
        "$DORMOUSE" start "$agent" -q
    done
    git add .dormouse
    git commit --quiet -m "two agents"
    git push --quiet -u origin main
)
git clone --quiet remote.git two

say "2. Something is said on each of them."
for number in 1 2 3; do
    on one enqueue builder "part $number" -q >> said
    on two enqueue writer "page $number" -q >> said
done
on one sync
on two sync

say "3. Both tick, at the same time, until there is nothing left to do."
on one tick --all --until-idle --push > first 2>&1 &
on two tick --all --until-idle --push > second 2>&1
wait
on one tick --all --until-idle --push > /dev/null
on two sync -q

say "4. Each message had one turn, on one machine or the other."
printf '%s turns of %s messages\n' "$(wc -l < turns | tr -d ' ')" "$(sort -u turns | wc -l | tr -d ' ')"
on two briefs builder | sed 's/ on [a-z]*$/ on one of them/'

say "5. Both have the same, and it is in order."
on one sync -q
on two sync -q
test "$(git -C one rev-parse HEAD)" = "$(git -C two rev-parse HEAD)"
on one doctor
on two doctor
