#!/bin/sh
# What a turn of the storm does. It notes in a log outside the state directory that it began, does what
# its message asks for, and notes that it ended. Notes are appended in one write each.
note() {
    printf '\n%s .\n' "$*" >> "$STORM_OUT/turns"
}
# Whatever is left of an earlier turn of this agent still holds this lock.
exec 9>>"$STORM_OUT/turning.$DORMOUSE_AGENT" || exit 70
flock -n 9
[ $? = 1 ] && note overlap "$DORMOUSE_AGENT" "$DORMOUSE_MESSAGE" "$DORMOUSE_RUN" "$DORMOUSE_ATTEMPT" $$
note start "$DORMOUSE_AGENT" "$DORMOUSE_MESSAGE" "$DORMOUSE_RUN" "$DORMOUSE_ATTEMPT" $$ || exit 70
end() {
    note end "$DORMOUSE_AGENT" "$DORMOUSE_MESSAGE" "$DORMOUSE_RUN" "$DORMOUSE_ATTEMPT" $$ || exit 70
    exit "$1"
}
act() {
    echo "$1" > "$DORMOUSE_OUTCOME" || exit 70
}
text=
while IFS= read -r line; do
    case $line in *'"text": "'*) text=${line#*'"text": "'}; break ;; esac
done
case $text in
slow*) sleep 0.3 ;;
fail*) end 1 ;;
flaky*) [ "$DORMOUSE_ATTEMPT" = 1 ] && end 1 ;;
later*)
    # Every other time, or so.
    case $DORMOUSE_RUN in *[0-7]) act '{"deferred": {"reason": "busy", "after": "100ms"}}'; end 75 ;; esac ;;
yield*)
    "$STORM_DORMOUSE" safe-point --wait 300ms > "$STORM_OUT/heard.$DORMOUSE_RUN" 9>&-
    if [ $? = 10 ]; then
        echo saved | "$STORM_DORMOUSE" yield --checkpoint - 9>&-
        end 0
    fi ;;
send*)
    to=${text#send }; to=${to%% *}
    act '{"actions": [{"do": "enqueue", "agent": "'"$to"'", "text": "sent by '"$DORMOUSE_RUN"'"}]}'
    note sent "$to" "$DORMOUSE_RUN" || exit 70 ;;
self*) "$STORM_DORMOUSE" enqueue "$DORMOUSE_AGENT" "quick to myself" 9>&- ;;
task*) "$STORM_DORMOUSE" task start --summary "of a turn" -- sleep 0.1 9>&- ;;
work*) act '{"actions": [{"do": "work.add", "objective": "to be done", "blocked_by": "the weather"}]}' ;;
timer*) act '{"actions": [{"do": "timer.add", "in": "200ms", "text": "quick timer"}]}' ;;
wait*) act '{"actions": [{"do": "wait", "kind": "external", "reason": "the weather", "whole_agent": true, "expires_after": "500ms"}]}' ;;
wrong*) act '{"actions": [{"do": "nothing"}]}' ;;
leave*)
    sleep 100 &
    setsid sleep 100 & ;;
esac
end 0
