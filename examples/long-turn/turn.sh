#!/bin/sh
# One turn: prints page after page. After each page it checks for a request to yield. Its checkpoint
# is the number of the last finished page.
set -eu

case $DORMOUSE_AGENT in
book) pages=6 ;;
*) pages=1 ;;
esac

page=0
[ -z "${DORMOUSE_CHECKPOINT:-}" ] || page=$(cat "$DORMOUSE_CHECKPOINT")
first=$((page + 1))

while [ "$page" -lt "$pages" ]; do
    page=$((page + 1))
    # An interrupted page would spoil the sheet, so this is a critical section.
    dormouse non-preemptible --deadline 5m -- ./print.sh "$page"

    # Between two pages the turn can yield.
    status=0
    dormouse safe-point || status=$?
    case $status in
    0) ;;
    10)
        echo "$page" | dormouse yield --checkpoint -
        exit
        ;;
    *) exit "$status" ;;
    esac
done
echo "printed from page $first to page $page"
