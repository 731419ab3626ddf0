#!/bin/sh
# A budget that stops a runaway: an agent that always finds something more to do, and what it may cost in a day.
#
#     sh examples/budget.sh
#
# Builds the program first. Set DORMOUSE to use one that is there already.
set -eu

. "$(dirname -- "$0")/program.sh"
export DORMOUSE

work=$(mktemp -d "${TMPDIR:-/tmp}/dormouse-budget.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work"
# Only what this script makes: no other state directory, no turn that we may be inside of.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW

say() { printf '\n%s\n' "$*"; }
run() { printf '$ dormouse %s\n' "$*"; "$DORMOUSE" "$@"; }
# The time is ours: so that a day can pass, and that it does not end in between.
at() {
    DORMOUSE_NOW=$1
    export DORMOUSE_NOW
    printf '(it is %s)\n' "$1"
}
at 2026-01-31T22:15:00Z

say "1. An agent that says something to itself in every turn, and reports what that cost."
cat >turn.sh <<'TURN'
#!/bin/sh
cat >"$DORMOUSE_OUTCOME" <<'OUTCOME'
{
  "brief": "One more idea",
  "actions": [{ "do": "enqueue", "text": "Go on" }],
  "usage": { "input_tokens": 9000, "output_tokens": 1000, "cost_usd": 0.40 }
}
OUTCOME
TURN
chmod +x turn.sh
run init
cat >agent.toml <<'POLICY'
[turn]
command = ["./turn.sh"]

[limits]
cost_per_day = 1.00
POLICY
run create dreamer --from agent.toml >/dev/null
run start dreamer
run enqueue dreamer "Have an idea"

say "2. Left alone it would never end. It gets as far as its budget."
run tick dreamer --until-idle

say "3. What is left, and when does it continue? The message waits, and nothing has failed."
run get dreamer limits.left.cost_per_day
run next-wake dreamer
run queue list --agent dreamer

say "4. One millisecond early is too early."
at 2026-01-31T23:59:59.999Z
run tick dreamer

say "5. At midnight, in UTC, there is a new day and a new budget."
at 2026-02-01T00:00:00Z
run tick dreamer --until-idle
run doctor
