#!/bin/sh
# A look every morning at nine: a timer by the calendar, and nothing that runs in between.
#
#     examples/daily-look/run.sh
#
# A month passes in a second: DORMOUSE_NOW tells one command what time it is, which is good for
# trying things out. Leave it alone elsewhere. Needs jq.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
. "$(dirname -- "$0")/../program.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/daily-look.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
# Only what this script makes: no other state directory, no turn that we may be inside of.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN

dormouse() {
    echo "\$ dormouse $*"
    "$DORMOUSE" "$@"
}
say() { printf '\n%s\n' "$*"; }
# From here on it is this late.
at() {
    export DORMOUSE_NOW="$1"
    say "-- $DORMOUSE_NOW: $2"
}

cp "$here/look.sh" "$work"
cd "$work"
printf 'water the plants\nanswer Ada\n' >list.txt

at 2026-03-02T08:00:00+01:00 "an agent, and a timer: nine o'clock in Berlin, whatever the clock of this machine"
"$DORMOUSE" init >/dev/null
"$DORMOUSE" create looker --from "$here/agent.toml" >/dev/null
dormouse start looker
dormouse timer add -a looker --cron "0 9 * * *" --tz Europe/Berlin "have a look at the list"
dormouse tick looker

say "When is something to do? A script can sleep until then, a systemd timer can be told."
dormouse next-wake looker
dormouse next-wake looker --format systemd

at 2026-03-02T08:30:00+01:00 "a step before that changes nothing; with --exit-code it says so, with 10"
before=$(cat .dormouse/agents/looker/state.json)
status=0
dormouse tick looker --exit-code || status=$?
[ "$status" -eq 10 ] || { echo "daily-look: exit status $status" >&2; exit 1; }
[ "$before" = "$(cat .dormouse/agents/looker/state.json)" ] || { echo "daily-look: it wrote" >&2; exit 1; }
echo "exit status $status, and not a byte written"

for day in 1 2; do
    at "$("$DORMOUSE" next-wake looker)" "morning $day: the timer is due, so the step makes its message and runs the turn"
    dormouse tick looker --until-idle
done
echo "fix the gate" >>list.txt

at 2026-03-10T14:30:00+01:00 "a week later: the machine was off, and seven mornings went by"
say "There is one look to catch up, not seven; its message carries the count of the others."
dormouse tick looker --until-idle
say "And it is not late for ever: the next one is at nine again."
dormouse next-wake looker

say "-- the rest of March, a step each morning when the timer is due"
mornings=0
while next=$("$DORMOUSE" next-wake looker) && [ "${next%%T*}" != 2026-03-30 ]; do
    export DORMOUSE_NOW="$next"
    "$DORMOUSE" tick looker --until-idle >/dev/null
    mornings=$((mornings + 1))
    echo "$next" >>mornings.txt
done
echo "$mornings mornings. On the 29th Berlin put its clocks forward, so nine o'clock there became 07:00 UTC:"
tail -n 3 mornings.txt

say "What it said about the week that was missed, and last:"
"$DORMOUSE" briefs looker --limit 0 | sed -n '1p; /missed/p'

say "In between nothing ran. Here time was told; elsewhere one line of cron or a systemd timer calls"
echo "\`dormouse tick --all --until-idle\` once a minute: examples/cron, examples/systemd."
