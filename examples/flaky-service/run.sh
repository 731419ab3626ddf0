#!/bin/sh
# A service that fails several times and then works: attempts, the pauses between them, and a
# message that is given up and sent once more.
#
#     examples/flaky-service/run.sh
#
# Minutes pass in a second: DORMOUSE_NOW tells one command what time it is.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
. "$(dirname -- "$0")/../program.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/flaky-service.XXXXXX")
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
wrong() {
    echo "flaky-service: $*" >&2
    exit 1
}
# Two words that must be the same.
same() { [ "$1" = "$2" ] || wrong "$3: \`$1\`, not \`$2\`"; }
get() { "$DORMOUSE" get courier "$1"; }
seconds() { echo "$1" | awk -F '[T:Z]' '{ printf "%.3f", $2 * 3600 + $3 * 60 + $4 }'; }

# One step whose turn must fail: `tick` says so with exit status 7.
fails() {
    status=0
    dormouse tick courier || status=$?
    same "$status" 7 "exit status of a turn that failed"
}
# The pause after an attempt: so many seconds, and at most a tenth more.
pause() {
    not_before=$(get retry.not_before)
    same "$("$DORMOUSE" next-wake courier)" "$not_before" "the next step is due"
    awk -v from="$(seconds "$DORMOUSE_NOW")" -v to="$(seconds "$not_before")" -v least="$1" 'BEGIN {
        pause = to - from
        printf "a pause of %.3f s: %d s, and a part of a tenth of it\n", pause, least
        exit !(pause > least - 0.0005 && pause < least * 1.1 + 0.0005)
    }' || wrong "the pause is not $1 s and up to a tenth more"
}

cp "$here/turn.sh" "$here/service.sh" "$work"
cd "$work"

at 2026-03-02T12:00:00.000Z "the service is down, for three calls"
echo 3 >outage
"$DORMOUSE" init >/dev/null
"$DORMOUSE" create courier --from "$here/agent.toml" >/dev/null
dormouse start courier
dormouse enqueue courier "an order"
fails
same "$(get execution.state)" failed "the agent"

say "Its message is kept, for the second attempt. When is that?"
dormouse get courier retry.not_before
dormouse next-wake courier
pause 10

say "A step that comes too early finds that out, and calls nobody:"
dormouse tick courier
same "$(wc -l <calls | tr -d ' ')" 1 "calls"

for attempt in 2 3; do
    at "$("$DORMOUSE" next-wake courier)" "attempt $attempt: the agent recovers, and its next step tries again"
    dormouse tick courier
    fails
    pause $((5 * (1 << attempt)))
done

at "$("$DORMOUSE" next-wake courier)" "attempt 4: the service is back"
dormouse tick courier --until-idle
same "$(get last_turn.brief)" "200 OK, on attempt 4" "the last word"
same "$("$DORMOUSE" next-wake courier)" "" "nothing is due"

at 2026-03-02T13:00:00.000Z "a longer outage, and two more orders"
echo 4 >outage
order=$("$DORMOUSE" enqueue courier "the order that has bad luck")
fails
at 2026-03-02T13:00:01.000Z "the second of them"
dormouse enqueue courier "the order after it"
while [ "$(cat outage)" -gt 0 ]; do
    at "$("$DORMOUSE" next-wake courier)" "the pause is over"
    status=0
    # What needs a person stands on stderr, where cron takes it from.
    dormouse tick courier --until-idle 2>&1 || status=$?
    same "$status" 7 "exit status of a turn that failed"
done

say "After four attempts it was a dead letter, and held up nobody: the next order went through."
dormouse list
same "$(get attention.count)" 1 "what needs attention"
same "$(get last_turn.brief)" "200 OK, on attempt 1" "the last word"
dormouse queue dead -a courier
dormouse queue show "$order"
same "$(get queue.dead)" 1 "dead letters"

say "The service works again, so the operator sends it once more; it begins at the first attempt."
dormouse queue requeue "$order"
same "$(get attention.count)" "" "what needs attention"
dormouse tick courier --until-idle
same "$(get last_turn.brief)" "200 OK, on attempt 1" "the last word"
same "$(get queue.dead)" 0 "dead letters"
same "$("$DORMOUSE" queue show "$order" --json | grep -c '"status":"processed"')" 1 "a processed order"
same "$(wc -l <calls | tr -d ' ')" 10 "calls"
dormouse doctor
