#!/bin/sh
# One turn of this agent. It begins when there is something to do, does one thing, and ends. Needs jq.
#
#   What it is told   is JSON on stdin, and in the file $DORMOUSE_CONTEXT (`dormouse schema context`)
#   What it says      on stdout is kept with the run; the last line is its brief
#   How it ends       0: done. 75: not now, try later. Anything else: failed, and tried again later
#
# This file is yours: change it as you like, the next turn runs what stands here then.
set -eu

# The message: its text, or its JSON where it is no text. `.message.body_is` says "instruction", or "evidence" for
# what came from outside and is to be weighed, not obeyed. Quote what you take from it: it may be any text.
message=$(jq -r '.message.body | if .type == "text" then .text else (.value | tojson) end' "$DORMOUSE_CONTEXT")

# A turn that was cut off is tried again, so do things in a way that may be done twice.
if [ "$DORMOUSE_ATTEMPT" -gt 1 ]; then
    echo "This is attempt $DORMOUSE_ATTEMPT."
fi

# ---- Your work goes here. ----
characters=$(printf '%s' "$message" | wc -m)

# What is to happen next can be written to $DORMOUSE_OUTCOME: waits, timers, work items, messages to other agents
# (`dormouse schema outcome`). Without "brief" the last line of stdout is the brief.
#
#   echo '{"actions": [{"do": "timer.add", "in": "1h", "text": "look again"}]}' >"$DORMOUSE_OUTCOME"
#   dormouse check-outcome "$DORMOUSE_OUTCOME"

echo "read $((characters)) characters"
