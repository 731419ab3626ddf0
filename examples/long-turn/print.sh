#!/bin/sh
# Prints one page on a sheet of paper. If there is no paper, the script waits for a sheet.
set -eu
printf '%s, page %s: ' "$DORMOUSE_AGENT" "$1" >>press/sheets
until rm "press/paper/$(ls press/paper | head -n 1)" 2>/dev/null; do
    : >press/out-of-paper
    sleep 0.05
done
echo "printed" >>press/sheets
