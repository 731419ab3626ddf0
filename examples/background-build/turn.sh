#!/bin/sh
# A turn of the builder, for a request or for the result of a check. Needs jq.
#
# A build may take longer than a turn should. So the turn starts the build as a task, waits for the task, and ends.
set -eu

case $(jq -r .message.kind "$DORMOUSE_CONTEXT") in
    operator_prompt)
        # Inside a turn, commands act as the agent, so no agent is named.
        id=$(dormouse task start --summary "cargo check" --timeout 10m -- ./build.sh)
        dormouse wait --on task --resource "$id" --reason "the check has to end" >/dev/null
        echo "started a check"
        ;;
    task_result)
        # The message names the task, whose output is kept after the task has ended.
        id=$(jq -r .message.task_id "$DORMOUSE_CONTEXT")
        said=$(dormouse task output "$id" --stderr --bytes 2000 | grep -v '^ *$' | tail -n 3)
        case $(dormouse --json task status "$id" | jq -r .status) in
            completed) verdict="the check passed" ;;
            *) verdict="the check did not pass" ;;
        esac
        jq -n --arg brief "$verdict:
$said" '{brief: $brief}' >"$DORMOUSE_OUTCOME"
        ;;
esac
