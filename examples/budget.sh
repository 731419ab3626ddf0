#!/bin/sh
# A limit on the cost per day stops an agent that sends itself a message in every turn.
#
#     sh examples/budget.sh
#
# Builds the program first, unless DORMOUSE names one.
set -eu

. "$(dirname -- "$0")/program.sh"
export DORMOUSE

work=$(mktemp -d "${TMPDIR:-/tmp}/dormouse-budget.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work"
# Use only the state directory of this script, even inside a turn.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW

say() { printf '\n%s\n' "$*"; }
run() { printf '$ dormouse %s\n' "$*"; "$DORMOUSE" "$@"; }
# Sets the time of the following commands, so that the session has the same result at any time of day.
at() {
    DORMOUSE_NOW=$1
    export DORMOUSE_NOW
    printf '(it is %s)\n' "$1"
}
at 2026-01-31T22:15:00Z

say "1. An agent that sends itself a message in every turn, and reports the cost of the turn."
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

say "2. Without a limit it would never end. It runs until its budget is spent."
run tick dreamer --until-idle

say "3. The rest of the budget, and the time when the agent continues. The message waits, and no attempt has failed."
run get dreamer limits.left.cost_per_day
run next-wake dreamer
run queue list --agent dreamer

say "4. One millisecond before that time the agent still waits."
at 2026-01-31T23:59:59.999Z
run tick dreamer

say "5. At midnight (UTC) a new day begins, with a new budget."
at 2026-02-01T00:00:00Z
run tick dreamer --until-idle
run doctor
