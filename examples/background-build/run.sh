#!/bin/sh
# An agent starts a build in the background, rests, and continues when the build has ended.
#
#     examples/background-build/run.sh
#
# The first build passes, the second fails. Needs cargo and jq.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
for tool in cargo jq; do
    command -v "$tool" >/dev/null || { echo "background-build: needs $tool" >&2; exit 1; }
done
. "$(dirname -- "$0")/../program.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/background-build.XXXXXX")
# A task outlives the process that started it, so stop the agent, which ends the task.
trap '"$DORMOUSE" -C "$work" stop --all --grace 0 >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
# Use only the state directory of this script, even inside a turn.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW
# The turns call dormouse by its name. cargo writes only below this directory.
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

# Asks for a check, shows the agent during the check, and lets it take up the result.
check() {
    dormouse enqueue builder "check the crate"
    dormouse tick builder
    id=$("$DORMOUSE" get builder active_tasks.0.id)

    say "The build runs, and the turn has ended. The agent waits for this task:"
    dormouse get builder status
    dormouse wait list -a builder
    dormouse tick builder

    say "The output of the build can be followed to its end:"
    echo go >gate
    dormouse task output "$id" --stderr --follow
    dormouse task status "$id"

    say "The result is a message. It ends the wait and starts a turn:"
    dormouse tick builder --until-idle
    dormouse get builder last_turn.brief
}

say "1. A check that passes."
check

say "2. A check that fails."
sed 's/-> String/-> u32/' greeting/src/main.rs >broken
mv broken greeting/src/main.rs
check

say "3. Both tasks are in the archive."
dormouse task list -a builder --ended
dormouse doctor
