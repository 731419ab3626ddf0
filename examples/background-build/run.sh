#!/bin/sh
# A build in the background: the agent starts it, sleeps, and is woken by its end.
#
#     examples/background-build/run.sh
#
# Once it passes, once it does not. Needs cargo and jq.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
for tool in cargo jq; do
    command -v "$tool" >/dev/null || { echo "background-build: needs $tool" >&2; exit 1; }
done
. "$(dirname -- "$0")/../program.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/background-build.XXXXXX")
# A task outlives whoever started it, but not a stop of its agent.
trap '"$DORMOUSE" -C "$work" stop --all --grace 0 >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
# Only what this script makes: no other state directory, no turn that we may be inside of.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW
# The turns call dormouse too. What cargo writes stays here.
PATH=$(dirname -- "$DORMOUSE"):$PATH
export PATH CARGO_HOME="$work/cargo" CARGO_TARGET_DIR="$work/target"

dormouse() {
    echo "\$ dormouse $*"
    "$DORMOUSE" "$@"
}
say() { printf '\n%s\n' "$*"; }

cp -R "$here/turn.sh" "$here/build.sh" "$here/greeting" "$work"
cd "$work"
mkfifo gate
"$DORMOUSE" init >/dev/null
"$DORMOUSE" create builder --from "$here/agent.toml" >/dev/null
"$DORMOUSE" start builder >/dev/null

# Asks for a check, looks at the agent meanwhile, and lets it hear how the check ended.
check() {
    dormouse enqueue builder "check the crate"
    dormouse tick builder
    id=$("$DORMOUSE" get builder active_tasks.0.id)

    say "The build runs; the turn is over. The agent waits for this very task:"
    dormouse get builder status
    dormouse wait list -a builder
    dormouse tick builder

    say "The build continues. Whoever wants to can watch it to its end:"
    echo go >gate
    dormouse task output "$id" --stderr --follow
    dormouse task status "$id"

    say "Its result is a message, which resumes the wait and brings the agent back:"
    dormouse tick builder --until-idle
    dormouse get builder last_turn.brief
}

say "1. A check that passes."
check

say "2. Somebody breaks the crate."
sed 's/-> String/-> u32/' greeting/src/main.rs >broken
mv broken greeting/src/main.rs
check

say "3. All of it is on record."
dormouse task list -a builder --ended
dormouse doctor
