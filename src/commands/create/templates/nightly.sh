#!/bin/sh
# One turn of an agent that works every night. The first turn, for any message, sets the timer and
# also does the work, as a trial. Needs jq. The agent needs regular ticks: `dormouse service cron`
# prints a line for your crontab.
#
#   Input         JSON on stdin and in the file $DORMOUSE_CONTEXT (`dormouse schema context`)
#   Output        stdout is kept with the run; its last line is the brief (summary) of the turn
#   Exit status   0: done. 75: deferred until later. Any other: failed, and retried later
#
# After missed nights (for example, the machine was off), the next tick runs one turn for all.
# You can edit this file. The next turn runs the edited script.
set -eu

# The outcome adds the timer if none exists. An outcome takes effect only if its turn completes.
jq --arg at "$NIGHTLY_AT" '
    if any(.timers[]; .body.text? == "nightly work") then {}
    else {actions: [{do: "timer.add", cron: $at, text: "nightly work", catch_up: "once"}]}
    end' "$DORMOUSE_CONTEXT" >"$DORMOUSE_OUTCOME"

# ---- Your work goes here. ----
# The example reports how full the disk is, and how many files changed since yesterday.
full=$(df -P . | awk 'NR == 2 {print $5}')
changed=$(find . -path ./.dormouse -prune -o -type f -mtime -1 -print | wc -l)

echo "the disk is $full full, $((changed)) files changed since yesterday"
