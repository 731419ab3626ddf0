#!/bin/sh
# One turn of an agent that has a language model write a text. It may take forty minutes, nearly all
# of them in one call of a client that knows nothing of dormouse: `curl`, or `llm` from PyPI.
# Needs jq and git.
#
# Whatever ends the turn, no more of the answer is lost than was said in the last SAVE_EVERY:
#
#   somebody needs the agent to make way    the client is ended, what it has said so far is saved
#   the operator interjects                 the same, and the model continues with these words in mind
#   the model says "not now" (429)          the turn says until when, and nobody asks sooner
#   a kill, a power cut, a timeout          the next run continues from what was saved last
set -eu

# Everything that only this run needs. (No two turns share it: they need the same workspace, alone.)
desk=desk
rm -rf "$desk"
mkdir "$desk"

# ---- What is known: the conversation, and how far it is. This is what a checkpoint holds. ----
#
#   messages                  as the model is sent them
#   heard                     ids of what the operator has said
#   asked, written, pushed    the last part of which that is true
#   taken                     how many answers of this run stand in `messages`
talk=$desk/talk.json

know() { jq -r ".$1" "$talk"; }

# learn FILTER [OPTION...]: changes what is known.
learn() {
    jq -c "$@" "$talk" >"$talk.new"
    mv "$talk.new" "$talk"
}

# hear FILE: what the operator has said goes into the conversation, each message once.
hear() {
    learn --slurpfile said "$1" '
        reduce $said[] as $message (.;
            if .heard | index($message.id) then . else
                .heard += [$message.id]
                | .messages += [{role: "user", content: "The operator says: \($message.body.text // $message.body.value)"}]
            end)'
}

# ---- What the client brings. ----

# What curl gets are events. One that was cut in half is no JSON, and passed over.
events() { tr -d '\r' <"$desk/answer" | sed -n 's/^data: *//p' | jq -Rc 'fromjson?'; }

# All that it has said so far.
said() {
    case $MODEL_CLIENT in
    curl) events | jq -rj '.choices[0].delta.content // empty' ;;
    llm) cat "$desk/answer" ;;
    esac
}
# Whether the model has come to an end; else the connection was lost, or the answer got too long.
is_at_its_end() {
    case $MODEL_CLIENT in
    curl) [ "$(events | jq -r '.choices[0].finish_reason // empty')" = stop ] ;;
    llm) ;; # says so with its exit status
    esac
}
# Without the line in the middle of which it was cut off.
whole_lines() { while IFS= read -r line; do printf '%s\n' "$line"; done; }

# What is known, and the text on stdin as what the model has said, unless that stands there already.
# Where the model continues, it lengthens what it said last.
with_answer() {
    jq -c --rawfile text /dev/stdin --argjson answers "$answers" '
        if .taken == $answers or $text == "" then .
        elif .messages[-1].role == "assistant" then .messages[-1].content += $text
        else .messages += [{role: "assistant", content: $text}]
        end
        | .taken = $answers' "$talk"
}

# Saves where we are, in the middle of an answer too. The turn continues.
save() {
    now=$(said | whole_lines | with_answer) && printf '%s\n' "$now" | dormouse checkpoint -
}

# What was used, one line for each answer that came to its end.
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

# Whether the model has said "not now" (429). Until when is in `after` then, if it has said that too.
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

# ---- How the turn ends. ----

# outcome [OPTION...] FILTER: writes what comes of this run: what it has used, and what the filter adds.
outcome() {
    jq -s --arg model "$MODEL" --argjson usd_read "$USD_PER_MILLION_READ" \
        --argjson usd_written "$USD_PER_MILLION_WRITTEN" "$@" \
        <"$desk/used" >"$DORMOUSE_OUTCOME"
}
usage='{usage: ((map(.read) | add // 0) as $read | (map(.written) | add // 0) as $written | {
    model: $model, input_tokens: $read, output_tokens: $written,
    cost_usd: (($read * $usd_read + $written * $usd_written) / 1000000)
})}'

# Somebody needs us to make way. The same turn continues from here when it may.
make_way() {
    outcome "$usage"
    dormouse yield --checkpoint "$talk"
    exit
}

# Exit status 75 says "not now", and the outcome until when: no step runs this turn sooner.
put_off() {
    dormouse checkpoint "$talk"
    outcome --arg after "$after" "$usage"' + {deferred: ({resource: "model:\($model)", reason: "429"}
        + if $after == "" then {} else {after: $after} end)}'
    exit 75
}

# A stop, or a turn whose time is over: SIGTERM comes to this script alone, and the client still runs.
trap 'save || :; exit 1' TERM

# ---- Between two calls of the client. ----

# A safe point. What the operator has said with priority `interject` comes on stdout, once.
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

# Runs beside it, and saves now and then.
# (That the turn is to make way, or that the operator has something to say, is seen by
# `safe-point -- CMD`, which then ends the client.)
attend() {
    waiting=
    trap 'kill $waiting 2>/dev/null; exit 0' TERM
    while :; do
        # Comes back at once when there is something: then the client ends.
        dormouse safe-point --peek --wait "$SAVE_EVERY" >"$desk/news" &
        waiting=$!
        wait "$waiting" || exit 0
        save || :
        [ ! -s "$desk/news" ] || exit 0
    done
}

# Has the model continue. `is_whole` says then whether its answer came to an end.
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
        # MODEL_HEADERS, where it is set, is a file with the line `Authorization: Bearer …`, for you alone.
        set -- curl --silent --show-error --no-buffer --fail-with-body --dump-header "$desk/headers" \
            ${MODEL_HEADERS:+--header "@$MODEL_HEADERS"} --header 'Content-Type: application/json' \
            --data-binary @- "$MODEL_URL/chat/completions"
        ;;
    llm)
        # It takes text: the conversation as a transcript. Its key and the server's address are its own affair.
        jq -r "$go_on"' | .messages[] | "[\(.role)]\n\(.content)\n"' "$talk" >"$desk/request"
        set -- llm --model "$MODEL" --no-log --usage
        ;;
    esac

    # The client, in the background, so that a signal reaches this script while it waits.
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
    # Somebody wants something of us. `listen` is next, and says what.
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
    # An earlier run of this message has saved where it was, and may have heard more than it could save.
    jq '.taken = 0' "$DORMOUSE_CHECKPOINT" >"$talk"
    jq -c '.interjected[]?' "$DORMOUSE_CONTEXT" >"$desk/heard"
    hear "$desk/heard"
else
    # What is to be done is on stdin, as text.
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

    # Half a push helps nobody: nobody ends the turn while this runs, for two minutes at most.
    # Who asks it to make way meanwhile is answered at the next safe point.
    jq -rj '.messages[] | select(.role == "assistant").content' "$talk" >checkout/text
    dormouse non-preemptible --deadline 2m -- ./publish.sh "Part $part"
    learn --argjson part "$part" '.pushed = $part'
    dormouse checkpoint "$talk"
done

lines=$(grep -c . checkout/text)
outcome --arg brief "$MODEL_PARTS parts, $lines lines, published as $(git -C checkout rev-parse --short HEAD)" \
    "$usage"' + {brief: $brief}'
