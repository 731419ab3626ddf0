#!/bin/sh
# One turn: prints a summary of the list. Needs jq.
#
# `source_refs` of the timer's message has the number of earlier fires without a message.
set -eu

missed=$(jq -r '[.message.source_refs[]? | select(startswith("missed="))] | first // ""' "$DORMOUSE_CONTEXT")
[ -z "$missed" ] || missed=" (${missed#missed=} looks before this one were missed)"

# The last line of stdout is the brief of the turn.
echo "$(($(wc -l <list.txt))) to do, the first is: $(head -n 1 list.txt)$missed"
