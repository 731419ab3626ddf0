#!/bin/sh
# A turn that lets a language model call tools until it has an answer. Needs curl and jq.
#
# The conversation is the file desk/talk.json in the workspace. Every pass of the loop replaces it, so the turn after a
# kill continues with the missing step. A call of `ask_for_review` ends the turn with a wait for the operator. The next
# turn gives the operator's message to the model as the result of that call.
set -eu

talk=desk/talk.json
[ -e "$talk" ] || echo '{"heard": [], "messages": [{"role": "system", "content": "You write notes. A person reviews them."}]}' >"$talk"

learn() {
    jq -c "$@" "$talk" >"$talk.new"
    mv "$talk.new" "$talk"
}

# jq functions for the filters below: the first call without a result, or nothing.
calls='def pending: [.messages[] | select(.role == "tool").tool_call_id] as $done
    | first(.messages[].tool_calls[]? | select(.id as $id | $done | index($id) | not)) // empty;'
answer_call() {
    learn --arg result "$1" "$calls"' pending.id as $id
        | .messages += [{role: "tool", tool_call_id: $id, content: $result}]'
}

# Adds the message to the conversation: as the result of a pending review, else as a request. A repeated attempt adds
# nothing.
learn --slurpfile context "$DORMOUSE_CONTEXT" "$calls"' $context[0].message as $message
    | if .heard | index($message.id) then . else
        .heard += [$message.id]
        | ([pending | select(.function.name == "ask_for_review").id] | first) as $review
        | .messages += [if $review then {role: "tool", tool_call_id: $review} else {role: "user"} end
            + {content: $message.body.text}]
      end'

tools='[{type: "function", function: {name: "write_note", description: "Writes the note",
        parameters: {type: "object", properties: {text: {type: "string"}}, required: ["text"]}}},
    {type: "function", function: {name: "ask_for_review", description: "Asks a person, and returns the answer",
        parameters: {type: "object", properties: {question: {type: "string"}}, required: ["question"]}}}]'

while :; do
    call=$(jq -r "$calls"' [pending.function] | first | if . then .name else empty end' "$talk")
    given() { jq -r "$calls"' [pending.function.arguments | fromjson] | first | .'"$1" "$talk"; }
    case $call in
    write_note)
        given text >desk/note
        answer_call "written"
        ;;
    ask_for_review)
        given question | jq -R '{brief: "asks for a review",
            actions: [{do: "wait", kind: "operator", reason: .}]}' >"$DORMOUSE_OUTCOME"
        exit
        ;;
    '')
        if [ "$(jq -r '.messages[-1].role' "$talk")" = assistant ]; then
            jq -r '.messages[-1].content' "$talk"
            exit
        fi
        # With MODEL_HEADERS, curl sends the lines of that file as headers.
        answer=$(jq --arg model "$MODEL" "{model: \$model, messages, tools: $tools}" "$talk" |
            curl --silent --show-error --fail-with-body ${MODEL_HEADERS:+--header "@$MODEL_HEADERS"} \
                --header 'Content-Type: application/json' --data-binary @- "$MODEL_URL/chat/completions")
        learn --argjson answer "$answer" '.messages += [$answer.choices[0].message]'
        ;;
    *) answer_call "there is no tool $call" ;;
    esac
done
