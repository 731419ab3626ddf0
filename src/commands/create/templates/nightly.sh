#!/bin/sh
# One turn of an agent that works every night. Its first message, whatever it says, sets its timer and does the work
# once, so that you see what the nights will bring. Needs jq. Something has to tick the agent: `dormouse service cron`
# prints a line for your crontab.
#
#   What it is told   is JSON on stdin, and in the file $DORMOUSE_CONTEXT (`dormouse schema context`)
#   What it says      on stdout is kept with the run; the last line is its brief
#   How it ends       0: done. 75: not now, try later. Anything else: failed, and tried again later
#
# A night that was slept through (the machine was off) is made up for once, when something ticks again.
# This file is yours: change it as you like, the next turn runs what stands here then.
set -eu

# The timer is set by the first turn that completes. (An outcome is taken whole, and only if the turn ends well.)
jq --arg at "$NIGHTLY_AT" '
    if any(.timers[]; .body.text? == "nightly work") then {}
    else {actions: [{do: "timer.add", cron: $at, text: "nightly work", catch_up: "once"}]}
    end' "$DORMOUSE_CONTEXT" >"$DORMOUSE_OUTCOME"

# ---- Your work goes here. ----
# As an example: how full the disk is, and what here changed since yesterday.
full=$(df -P . | awk 'NR == 2 {print $5}')
changed=$(find . -path ./.dormouse -prune -o -type f -mtime -1 -print | wc -l)

echo "the disk is $full full, $((changed)) files changed since yesterday"
