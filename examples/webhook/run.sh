#!/bin/sh
# GitHub reports a pull request by a webhook, and an agent writes a review of it.
#
#     examples/webhook/run.sh
#
# The script shows:
# - a trigger that checks GitHub's signatures
# - `dormouse ingress`, which answers one HTTP request and needs no server
# - a repeated delivery, which gets one review
# - a forged delivery, which is refused
#
# Needs jq and python3. For real webhooks, install dormouse-hook.socket and dormouse-hook@.service (in this directory).
set -eu

for tool in jq python3; do
    command -v "$tool" >/dev/null || { echo "webhook: needs $tool" >&2; exit 1; }
done
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
. "$(dirname -- "$0")/../program.sh"
dormouse=$DORMOUSE
work=$(mktemp -d "${TMPDIR:-/tmp}/webhook.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
cd "$work"

"$dormouse" init >/dev/null
"$dormouse" -q create reviewer -- "$here/turn.sh" >/dev/null
"$dormouse" start reviewer >/dev/null
trigger=$("$dormouse" --json trigger create -a reviewer --verify hmac_sha256 --source webhook:github \
    --secret-file "$work/key" | jq -r .id)

# Simulates GitHub: a body, and its signature with the key.
cat >body.json <<'JSON'
{"action":"opened","number":12,"pull_request":{"title":"WIP: everything","user":{"login":"octocat"},"head":{"sha":"6dcb09b5b57875f334f61aebed695e2e4193db5e"}},"repository":{"full_name":"org/repo"}}
JSON
deliver() { # DELIVERY KEY
    python3 - "$1" "$2" "/agents/reviewer/triggers/$trigger" <<'PYTHON' | "$dormouse" ingress | tail -n 1
import hashlib, hmac, sys
delivery, key, path = sys.argv[1:]
body = open("body.json", "rb").read()
signature = hmac.new(open(key, "rb").read().strip(), body, hashlib.sha256).hexdigest()
head = (f"POST {path} HTTP/1.1\r\nHost: hooks.example.org\r\nContent-Type: application/json\r\n"
        f"X-GitHub-Event: pull_request\r\nX-GitHub-Delivery: {delivery}\r\n"
        f"X-Hub-Signature-256: sha256={signature}\r\nContent-Length: {len(body)}\r\n\r\n")
sys.stdout.buffer.write(head.encode() + body)
PYTHON
}
first=$(deliver 72d3162e-cc78-11e3-81ab-4c9367dc0958 key | jq -r .message_id)
again=$(deliver 72d3162e-cc78-11e3-81ab-4c9367dc0958 key | jq -r '"\(.message_id) \(.duplicate)"')
[ "$again" = "$first true" ] || { echo "webhook: the repeated delivery was not recognised: $again" >&2; exit 1; }
echo wrong >forged
deliver x forged | jq -r '"forged: \(.error.message)"'

"$dormouse" tick reviewer --until-idle >/dev/null
cat review-*.md
echo "reviews: $(ls review-*.md | wc -l | tr -d ' ')"
