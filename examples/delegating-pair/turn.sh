#!/bin/sh
# One turn of the editor or of the writer. The actions of the outcome file are committed together
# with the end of the turn, all or none.
set -eu

text=$(jq -r .message.body.text "$DORMOUSE_CONTEXT")
case "$DORMOUSE_AGENT $(jq -r .message.kind "$DORMOUSE_CONTEXT")" in
"editor operator_prompt")
    # Delegate the writing to a child, and wait for that task.
    jq -n --arg text "$text" '{
        brief: "asked the writer for it",
        actions: [
            {do: "task.start", delegate: "writer", text: ("Write " + $text), summary: $text},
            {do: "wait", kind: "task", reason: "the writer"}
        ]}' >"$DORMOUSE_OUTCOME"
    ;;
"editor task_result")
    # The text of the result is the task's name and status, and then the last brief of the writer.
    echo "printed: $(echo "$text" | tail -n 1)"
    ;;
"writer operator_prompt")
    echo "${text#Write }, in three sentences"
    ;;
*)
    echo "nothing to do with: $text"
    ;;
esac
