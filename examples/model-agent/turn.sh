#!/bin/sh
# One turn of an agent whose language model writes a text. It may take forty minutes, nearly all of
# them in one call of a client that does not know dormouse: `curl`, or `llm` from PyPI.
# Needs jq and git.
#
# The turn saves the answer every SAVE_EVERY, so at most that much is lost:
#
#   a request to yield              safe-point ends the client, and the turn saves the answer and yields
#   an interjection                 safe-point ends the client, and the model continues with the new message
#   the model answers 429           the turn defers its message until the time that the model names
#   a kill, a power cut, a timeout  the next run continues from the last checkpoint
set -eu

# Directory for the files of this run. Turns don't share it, because their workspace is exclusive.
desk=desk
rm -rf "$desk"
mkdir "$desk"

# ---- The state: the conversation and its progress. A checkpoint is a copy of this file. ----
#
#   messages                  the messages for the model
#   heard                     ids of the operator's messages in the conversation
#   asked, written, pushed    number of the last part that was requested, written, pushed
#   taken                     number of answers of this run that are in `messages`
talk=$desk/talk.json

know() { jq -r ".$1" "$talk"; }

# learn FILTER [OPTION...]: changes the state.
learn() {
    jq -c "$@" "$talk" >"$talk.new"
    mv "$talk.new" "$talk"
}

# hear FILE: adds the operator's messages to the conversation, each once.
hear() {
    learn --slurpfile said "$1" '
        reduce $said[] as $message (.;
            if .heard | index($message.id) then . else
                .heard += [$message.id]
                | .messages += [{role: "user", content: "The operator says: \($message.body.text // $message.body.value)"}]
            end)'
}

# ---- The answer of the client. ----

# Prints the events that curl received. An incomplete event is not valid JSON, and is skipped.
events() { tr -d '\r' <"$desk/answer" | sed -n 's/^data: *//p' | jq -Rc 'fromjson?'; }

# Prints the answer so far.
said() {
    case $MODEL_CLIENT in
    curl) events | jq -rj '.choices[0].delta.content // empty' ;;
    llm) cat "$desk/answer" ;;
    esac
}
# Succeeds if the answer is complete. Otherwise the connection was lost, or the answer was too long.
is_at_its_end() {
    case $MODEL_CLIENT in
    curl) [ "$(events | jq -r '.choices[0].finish_reason // empty')" = stop ] ;;
    llm) ;; # llm reports an incomplete answer by its exit status
    esac
}
# Removes an incomplete last line.
whole_lines() { while IFS= read -r line; do printf '%s\n' "$line"; done; }

# Prints the state with the text on stdin as the model's answer, unless the state contains it already.
# If the model continues an answer, the text is appended to that answer.
with_answer() {
    jq -c --rawfile text /dev/stdin --argjson answers "$answers" '
        if .taken == $answers or $text == "" then .
        elif .messages[-1].role == "assistant" then .messages[-1].content += $text
        else .messages += [{role: "assistant", content: $text}]
        end
        | .taken = $answers' "$talk"
}

# Saves a checkpoint, also in the middle of an answer. The turn continues.
save() {
    now=$(said | whole_lines | with_answer) && printf '%s\n' "$now" | dormouse checkpoint -
}

# Writes the usage, one line for each complete answer.
count_tokens() {
    case $MODEL_CLIENT in
    curl)
        events | jq -c '.usage // empty | {read: .prompt_tokens, written: .completion_tokens}'
        ;;
    llm)
        tr -d , <"$desk/client.log" |
            sed -n 's/^Token usage: \([0-9]*\) input \([0-9]*\) output.*/{"read": \1, "written": \2}/p'
        ;;
    esac >>"$desk/used"
}

# Succeeds if the model answered 429. If the answer names a pause, `after` has it.
is_put_off() {
    case $MODEL_CLIENT in
    curl)
        grep -q '^HTTP/[0-9.]* 429' "$desk/headers" || return 1
        after=$(tr -d '\r' <"$desk/headers" | sed -n 's/^[Rr]etry-[Aa]fter: *\([0-9][0-9]*\)$/\1s/p')
        ;;
    llm)
        grep -q 'Error code: 429' "$desk/client.log" || return 1
        after=$(sed -n 's/.*try again in \([0-9hm]*\)\(\.[0-9]*\)\{0,1\}s.*/\1s/p' "$desk/client.log")
        ;;
    esac
}

# ---- The ends of the turn. ----

# outcome [OPTION...] FILTER: writes the outcome of this run: its usage, and the fields of the filter.
outcome() {
    jq -s --arg model "$MODEL" --argjson usd_read "$USD_PER_MILLION_READ" \
        --argjson usd_written "$USD_PER_MILLION_WRITTEN" "$@" \
        <"$desk/used" >"$DORMOUSE_OUTCOME"
}
usage='{usage: ((map(.read) | add // 0) as $read | (map(.written) | add // 0) as $written | {
    model: $model, input_tokens: $read, output_tokens: $written,
    cost_usd: (($read * $usd_read + $written * $usd_written) / 1000000)
})}'

# Saves the state and yields. The same attempt continues from there after `resume`.
make_way() {
    outcome "$usage"
    dormouse yield --checkpoint "$talk"
    exit
}

# Defers the message: exit status 75, with the time in the outcome. No step runs the turn sooner.
put_off() {
    dormouse checkpoint "$talk"
    outcome --arg after "$after" "$usage"' + {deferred: ({resource: "model:\($model)", reason: "429"}
        + if $after == "" then {} else {after: $after} end)}'
    exit 75
}

# A stop and a timeout send SIGTERM to this script first, while the client still runs.
trap 'save || :; exit 1' TERM

# ---- Between two calls of the client. ----

# A safe point. It prints messages of priority `interject` on stdout, each once.
listen() {
    status=0
    dormouse safe-point >"$desk/heard" || status=$?
    hear "$desk/heard"
    case $status in
    0) ;;
    10) make_way ;;
    *) exit "$status" ;;
    esac
}

# ---- While the client runs. ----

# Saves a checkpoint every SAVE_EVERY while the client runs.
# (`safe-point -- CMD` waits for requests and interjections, and then ends the client.)
attend() {
    waiting=
    trap 'kill $waiting 2>/dev/null; exit 0' TERM
    while :; do
        # Returns at once if there is a request or an interjection: then the client is ended.
        dormouse safe-point --peek --wait "$SAVE_EVERY" >"$desk/news" &
        waiting=$!
        wait "$waiting" || exit 0
        save || :
        [ ! -s "$desk/news" ] || exit 0
    done
}

# Lets the model continue, and sets `is_whole` to yes if its answer is complete, else to no.
ask() {
    : >"$desk/answer"
    answers=$((answers + 1))
    : >"$desk/headers"
    go_on='if .messages[-1].role == "assistant"
        then .messages += [{role: "user", content: "Go on after your last line. Repeat nothing."}] else . end'
    case $MODEL_CLIENT in
    curl)
        jq --arg model "$MODEL" "$go_on"' | {
            model: $model, messages, stream: true, stream_options: {include_usage: true}
        }' "$talk" >"$desk/request"
        # MODEL_HEADERS, if set, is a file with the line `Authorization: Bearer …` that only you can read.
        set -- curl --silent --show-error --no-buffer --fail-with-body --dump-header "$desk/headers" \
            ${MODEL_HEADERS:+--header "@$MODEL_HEADERS"} --header 'Content-Type: application/json' \
            --data-binary @- "$MODEL_URL/chat/completions"
        ;;
    llm)
        # llm reads text: the conversation as a transcript. It has its own settings for the key and the address.
        jq -r "$go_on"' | .messages[] | "[\(.role)]\n\(.content)\n"' "$talk" >"$desk/request"
        set -- llm --model "$MODEL" --no-log --usage
        ;;
    esac

    # The client runs in the background, so that the trap of this script runs during the wait.
    dormouse safe-point -- "$@" <"$desk/request" >"$desk/answer" 2>"$desk/client.log" &
    client=$!
    attend &
    attendant=$!
    status=0
    wait "$client" || status=$?
    kill "$attendant" 2>/dev/null || :
    wait "$attendant" 2>/dev/null || :

    count_tokens
    if [ "$status" -eq 0 ] && is_at_its_end; then
        is_whole=yes
        said | with_answer >"$talk.new"
    else
        is_whole=no
        said | whole_lines | with_answer >"$talk.new"
    fi
    mv "$talk.new" "$talk"

    [ "$is_whole" = no ] || return 0
    # There is a request or an interjection: the following `listen` handles it.
    [ "$status" -ne 10 ] || return 0
    if is_put_off; then put_off; fi
    dormouse checkpoint "$talk"
    outcome "$usage"
    cat "$desk/client.log" >&2
    echo "the answer broke off; $MODEL_CLIENT ended with status $status" >&2
    exit 1
}

# ---- The turn. ----

: >"$desk/used"
: >"$desk/answer"
answers=0
if [ -n "${DORMOUSE_CHECKPOINT:-}" ]; then
    # An earlier run has saved this state, and may have received interjections after that.
    jq '.taken = 0' "$DORMOUSE_CHECKPOINT" >"$talk"
    jq -c '.interjected[]?' "$DORMOUSE_CONTEXT" >"$desk/heard"
    hear "$desk/heard"
else
    # stdin has the request as text.
    jq -n --rawfile order /dev/stdin --slurpfile context "$DORMOUSE_CONTEXT" '{
        asked: 0, written: 0, pushed: 0, taken: 0,
        heard: [$context[0].interjected[]?.id],
        messages: [
            {role: "system", content: "You write plain text, line by line, and nothing else."},
            {role: "user", content: $order}
        ]
    }' >"$talk"
fi

while [ "$(know pushed)" -lt "$MODEL_PARTS" ]; do
    part=$(($(know pushed) + 1))
    if [ "$(know asked)" -lt "$part" ]; then
        learn --argjson part "$part" --argjson parts "$MODEL_PARTS" '.asked = $part
            | .messages += [{role: "user", content: "Write part \($part) of \($parts)."}]'
    fi
    while [ "$(know written)" -lt "$part" ]; do
        listen
        ask
        [ "$is_whole" = no ] || learn --argjson part "$part" '.written = $part'
    done
    dormouse checkpoint "$talk"

    # A push must not be interrupted, so it is a critical section of at most two minutes. The next safe
    # point handles a request that comes meanwhile.
    jq -rj '.messages[] | select(.role == "assistant").content' "$talk" >checkout/text
    dormouse non-preemptible --deadline 2m -- ./publish.sh "Part $part"
    learn --argjson part "$part" '.pushed = $part'
    dormouse checkpoint "$talk"
done

lines=$(grep -c . checkout/text)
outcome --arg brief "$MODEL_PARTS parts, $lines lines, published as $(git -C checkout rev-parse --short HEAD)" \
    "$usage"' + {brief: $brief}'
