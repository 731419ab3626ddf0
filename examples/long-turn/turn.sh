#!/bin/sh
# One turn: page after page, and after each a look at whether somebody needs the press sooner.
# Where it is then is its checkpoint: the number of the last page that is whole.
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
    # A page that was cut in half would spoil the sheet: nobody ends the turn while this runs.
    dormouse non-preemptible --deadline 5m -- ./print.sh "$page"

    # Between two pages it can be left, and taken up again.
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
