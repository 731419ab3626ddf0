#!/bin/sh
# A turn of a fleet. It notes in a log outside of all stores that it began, that it is alive, and that it ended, each in one
# write. It lasts until a file says that it may end, or as long as its message says, in tenths of a second.
#
# Each machine of the test sees the processes of all. So the turn drops the mark by which a machine finds what is left of a run
# among its own processes: it must not find those of another machine.
if [ -n "$DORMOUSE_RUN" ]; then
    exec env -u DORMOUSE_RUN "FLEET_RUN=$DORMOUSE_RUN" "$0"
fi
note() {
    read -r now _ </proc/uptime
    printf '\n%s .\n' "$1 $DORMOUSE_AGENT $FLEET_RUN $DORMOUSE_MESSAGE $DORMOUSE_FENCE $now" >>"$FLEET_LOG" || exit 70
}
note begin
text=
while IFS= read -r line; do
    case $line in *'"text": "'*) text=${line#*'"text": "'}; break ;; esac
done
case $text in
wait*)
    until [ -e "$FLEET_GO" ]; do
        sleep 0.1
        note alive
    done ;;
*)
    left=${text%%[!0-9]*}
    while [ "${left:-0}" -gt 0 ]; do
        sleep 0.1
        note alive
        left=$((left - 1))
    done ;;
esac
note end
