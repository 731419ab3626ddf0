#!/bin/sh
# One turn of an agent that asks a language model: the message and all that the agent knows go there, and the answer
# is what the turn has to say. Needs curl and jq. Which model, where and with which key stands in agent.toml.
#
#   What it is told   is text on stdin, and JSON in the file $DORMOUSE_CONTEXT (`dormouse schema context`)
#   What it says      on stdout is kept with the run: the whole answer. Its beginning is the brief
#   How it ends       0: answered. 75: the model has no time (429, 503, 529), with the moment at which it has
#                     some again where it said so. 1: failed, and tried again after a pause
#
# This file is yours: change it as you like, the next turn runs what stands here then.
set -eu

desk=$(mktemp -d)
trap 'rm -rf "$desk"' EXIT
trap 'exit 1' INT TERM

# ---- The key. It goes to curl through a pipe: it is no argument, in no file of ours, and in nothing that is said. ----
key=${LLM_API_KEY:-}
if [ -n "${LLM_KEY_FILE:-}" ]; then
    key=$(cat "$LLM_KEY_FILE")
fi
case $key in
*[!A-Za-z0-9._~+/=:-]*)
    echo "the key has a character that no key has: is it the key alone?" >&2
    exit 1
    ;;
esac
case $LLM_API in
anthropic)
    key_header="x-api-key: $key"
    version_header="anthropic-version: 2023-06-01"
    ;;
openai)
    key_header="Authorization: Bearer $key"
    version_header="Accept: application/json"
    ;;
*)
    echo "LLM_API in agent.toml is $LLM_API: it is anthropic or openai" >&2
    exit 1
    ;;
esac
headers() {
    printf 'header = "%s"\n' "$version_header" "Content-Type: application/json"
    [ -z "$key" ] || printf 'header = "%s"\n' "$key_header"
}
# What came from the other side, without the key, should it be in there.
without_key() { LLM_KEY=$key jq -Rrsj 'if $ENV.LLM_KEY == "" then . else split($ENV.LLM_KEY) | join("[key]") end'; }

# ---- The request. The message is never a word of the shell: it may be any text, of any length. ----
jq -Rs --arg api "$LLM_API" --arg model "$LLM_MODEL" --arg system "$LLM_SYSTEM" \
    --argjson max_tokens "$LLM_MAX_TOKENS" '
    {role: "user", content: .} as $message
    | {model: $model, max_tokens: $max_tokens}
    + if $api == "anthropic" then {system: $system, messages: [$message]}
      else {messages: [{role: "system", content: $system}, $message]}
      end' >"$desk/request"

# No redirection is followed: the key would go along.
status=$(headers | curl --config - --silent --show-error --proto =http,https --max-filesize 16777216 \
    --data-binary "@$desk/request" --dump-header "$desk/headers" --output "$desk/raw" \
    --write-out '%{http_code}' "$LLM_URL" 2>"$desk/trouble") || {
    echo "$LLM_URL can't be asked: $(head -n 1 "$desk/trouble" | without_key)" >&2
    exit 1
}
touch "$desk/raw"
without_key <"$desk/raw" >"$desk/answer"

# What went wrong, as the other side says it, in one short line; nothing where it says nothing.
complaint() {
    said=$(jq -rj 'if type == "object" and .error then .error | (.message? // .) | tostring else empty end' \
        "$desk/answer" 2>/dev/null | tr -s '\000-\037' ' ' | cut -c 1-300)
    [ -z "$said" ] || printf ': %s' "$said"
}

# ---- Not now. ----
case $status in
429 | 503 | 529)
    # Retry-After is a number of seconds, or a date. What is neither says nothing.
    sed -n 's/^[Rr][Ee][Tt][Rr][Yy]-[Aa][Ff][Tt][Ee][Rr]: *//p' "$desk/headers" | tail -n 1 | tr -d '\r' |
        jq -Rs --arg resource "model:$LLM_MODEL" --arg status "$status" '
        rtrimstr("\n") as $said
        | {deferred: ({resource: $resource, reason: $status}
            + if $said | test("^[0-9]{1,6}$") then {after: ($said + "s")}
              else ($said | try {until: (strptime("%a, %d %b %Y %H:%M:%S GMT") | mktime | todate)} catch {})
              end)}' >"$DORMOUSE_OUTCOME"
    echo "$LLM_MODEL has no time now ($status)$(complaint)" >&2
    exit 75
    ;;
200) ;;
401 | 403)
    echo "$LLM_URL does not take the key ($status)$(complaint)" >&2
    exit 1
    ;;
*)
    echo "$LLM_URL answered $status$(complaint)" >&2
    exit 1
    ;;
esac

# ---- The answer. Its brief is the first 2,000 characters; what was used is counted against the agent's limits. ----
if ! jq -e --arg api "$LLM_API" --arg model "$LLM_MODEL" --arg in "${LLM_USD_PER_MILLION_IN:-}" \
    --arg out "${LLM_USD_PER_MILLION_OUT:-}" '
    def count: if type == "number" and . >= 0 and . < 1e15 then floor else null end;
    (if $api == "anthropic" then [.content[] | select(.type == "text").text] | join("")
     else .choices[0].message.content
     end) as $text
    | if ($text | type) != "string" or $text == "" then error("no text") else . end
    | (.usage // {}) as $usage
    | ($usage | (.input_tokens // .prompt_tokens) | count) as $read
    | ($usage | (.output_tokens // .completion_tokens) | count) as $written
    | {
        text: $text,
        outcome: {
            brief: $text[0:2000],
            usage: ({model: $model, input_tokens: $read, output_tokens: $written}
                | with_entries(select(.value != null))
                | if $in == "" or $out == "" or $read == null or $written == null then .
                  else .cost_usd = (($read * ($in | tonumber) + $written * ($out | tonumber)) / 1000000)
                  end)
        }
    }' "$desk/answer" >"$desk/said" 2>/dev/null || [ ! -s "$desk/said" ]; then
    echo "$LLM_URL answered 200, but no answer is in what came: $(head -c 200 "$desk/answer" | tr -s '\000-\037' ' ')" >&2
    exit 1
fi
jq .outcome "$desk/said" >"$DORMOUSE_OUTCOME"
jq -r .text "$desk/said"
