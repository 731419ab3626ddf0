#!/bin/sh
# One turn of the agent: dormouse runs this script for each message that needs a turn. Needs jq.
#
#   Input         JSON on stdin and in the file $DORMOUSE_CONTEXT (`dormouse schema context`)
#   Output        stdout is kept with the run; its last line is the brief (summary) of the turn
#   Exit status   0: done. 75: deferred until later. Any other: failed, and retried later
#
# You can edit this file. The next turn runs the edited script.
set -eu

# Text or JSON of the message. `.message.body_is` is "instruction", or "evidence" for content from
# outside, which is information, not an order. Quote "$message", because it may be any text.
message=$(jq -r '.message.body | if .type == "text" then .text else (.value | tojson) end' "$DORMOUSE_CONTEXT")

# An interrupted turn is retried, so the work of a turn must be safe to run twice.
if [ "$DORMOUSE_ATTEMPT" -gt 1 ]; then
    echo "This is attempt $DORMOUSE_ATTEMPT."
fi

# ---- Your work goes here. ----
characters=$(printf '%s' "$message" | wc -m)

# A turn can request waits, timers, work items and messages to other agents in $DORMOUSE_OUTCOME
# (`dormouse schema outcome`). Without the field "brief", the last line of stdout is the brief.
#
#   echo '{"actions": [{"do": "timer.add", "in": "1h", "text": "look again"}]}' >"$DORMOUSE_OUTCOME"
#   dormouse check-outcome "$DORMOUSE_OUTCOME"

echo "read $((characters)) characters"
