#!/bin/sh
# One turn of the daily look: says what is on the list. Needs jq.
#
# The timer's message says which fire it is, and how many before it got no message of their own.
set -eu

missed=$(jq -r '[.message.source_refs[]? | select(startswith("missed="))] | first // ""' "$DORMOUSE_CONTEXT")
[ -z "$missed" ] || missed=" (${missed#missed=} looks before this one were missed)"

# The last line is the brief: what the agent has to say.
echo "$(($(wc -l <list.txt))) to do, the first is: $(head -n 1 list.txt)$missed"
