#!/bin/sh
# One turn: sends the message and the agent's context to a language model, and prints the answer.
# Needs curl and jq. agent.toml sets the model, its URL and the file with the API key.
#
#   Input         text on stdin, and JSON in the file $DORMOUSE_CONTEXT (`dormouse schema context`)
#   Output        stdout, the whole answer, is kept with the run; its beginning is the brief
#   Exit status   0: answered. 75: the server is busy (429, 503, 529), so the message is deferred,
#                 until the time in Retry-After if there is one. 1: failed, and retried later
#
# You can edit this file. The next turn runs the edited script.
set -eu

desk=$(mktemp -d)
trap 'rm -rf "$desk"' EXIT
trap 'exit 1' INT TERM

# ---- The API key. curl reads it from a pipe, so that no argument or output contains it. ----
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
# Copies stdin to stdout, and replaces the API key by `[key]`.
without_key() { LLM_KEY=$key jq -Rrsj 'if $ENV.LLM_KEY == "" then . else split($ENV.LLM_KEY) | join("[key]") end'; }

# ---- The request. jq reads the message from stdin, so any text of any length is safe. ----
jq -Rs --arg api "$LLM_API" --arg model "$LLM_MODEL" --arg system "$LLM_SYSTEM" \
    --argjson max_tokens "$LLM_MAX_TOKENS" '
    {role: "user", content: .} as $message
    | {model: $model, max_tokens: $max_tokens}
    + if $api == "anthropic" then {system: $system, messages: [$message]}
      else {messages: [{role: "system", content: $system}, $message]}
      end' >"$desk/request"

# curl follows no redirection, because the other server would receive the API key.
status=$(headers | curl --config - --silent --show-error --proto =http,https --max-filesize 16777216 \
    --data-binary "@$desk/request" --dump-header "$desk/headers" --output "$desk/raw" \
    --write-out '%{http_code}' "$LLM_URL" 2>"$desk/trouble") || {
    echo "$LLM_URL can't be asked: $(head -n 1 "$desk/trouble" | without_key)" >&2
    exit 1
}
touch "$desk/raw"
without_key <"$desk/raw" >"$desk/answer"

# Prints the server's error message as one short line, or nothing if the answer has no message.
complaint() {
    said=$(jq -rj 'if type == "object" and .error then .error | (.message? // .) | tostring else empty end' \
        "$desk/answer" 2>/dev/null | tr -s '\000-\037' ' ' | cut -c 1-300)
    [ -z "$said" ] || printf ': %s' "$said"
}

# ---- The HTTP status. If the server is busy, the message is deferred. ----
case $status in
429 | 503 | 529)
    # Retry-After is a number of seconds or a date. Any other value is ignored.
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

# ---- The answer. The first 2,000 characters are the brief. The usage counts towards limits. ----
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
