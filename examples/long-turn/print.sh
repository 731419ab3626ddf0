#!/bin/sh
# Prints one page, for which it needs a sheet of paper. Where there is none it waits for one.
set -eu
printf '%s, page %s: ' "$DORMOUSE_AGENT" "$1" >>press/sheets
until rm "press/paper/$(ls press/paper | head -n 1)" 2>/dev/null; do
    : >press/out-of-paper
    sleep 0.05
done
echo "printed" >>press/sheets
