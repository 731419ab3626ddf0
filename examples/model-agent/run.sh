#!/bin/sh
# A turn of forty minutes, mostly in one call of a language model. The session shows requests to
# yield, an interjection, a kill, and a rate limit. The model is simulated by a small server.
#
#     examples/model-agent/run.sh          # with curl
#     examples/model-agent/run.sh llm      # with llm, as in: pip install llm
#
# Needs git, jq, python3, and curl or llm.
set -eu

here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
client=${1:-curl}
. "$(dirname -- "$0")/../program.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/model-agent.XXXXXX")
tick=
model=
# A turn ends with the tick that runs it.
trap 'for process in $tick $model; do kill "$process" 2>/dev/null || :; done; wait; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
# Use only the state directory of this script, even inside a turn, and no proxy.
unset DORMOUSE_DIR DORMOUSE_AGENT DORMOUSE_RUN DORMOUSE_NOW MODEL_HEADERS
export no_proxy=127.0.0.1
# The turns call dormouse by its name.
PATH=$(dirname -- "$DORMOUSE"):$PATH
export PATH

dormouse() {
    echo "\$ dormouse $*"
    "$DORMOUSE" "$@"
}
say() { printf '\n%s\n' "$*"; }
fail() {
    echo "model-agent: $*" >&2
    "$DORMOUSE" events author | tail -n 20 >&2
    exit 1
}
same() { [ "$1" = "$2" ] || fail "$3: \`$1\`, not \`$2\`"; }
# until_true WHAT COMMAND...: waits until COMMAND succeeds, while the turn runs.
until_true() {
    what=$1
    shift
    until "$@"; do
        kill -0 "$tick" 2>/dev/null || fail "the turn has ended before $what: $(cat tick.txt)"
        sleep 0.05
    done
}
# The turn takes a while, so its tick runs in the background.
begin_tick() {
    echo "\$ dormouse tick author &"
    "$DORMOUSE" tick author >tick.txt 2>&1 &
    tick=$!
}
end_tick() {
    wait "$tick" || fail "the tick ended with status $?: $(cat tick.txt)"
    tick=
    cat tick.txt
}
model_has_said() { grep -q "$1\. " desk/answer 2>/dev/null; }
is_saved() { grep -q "$1\. " .dormouse/agents/author/runs/*/checkpoint-* 2>/dev/null; }
requests() { jq -s 'length' model/asked; }
published() { git -C published.git show HEAD:text | grep .; }

# Start the model, and set its address for both clients.
cp "$here/turn.sh" "$here/publish.sh" "$work"
cd "$work"
mkdir model llm
: >model/asked
python3 "$here/model.py" model &
model=$!
until [ -e model/port ]; do
    kill -0 "$model" 2>/dev/null || { echo "model-agent: the model has not started" >&2; exit 1; }
    sleep 0.05
done
MODEL_URL=http://127.0.0.1:$(cat model/port)/v1
MODEL_CLIENT=$client
LLM_USER_PATH=$work/llm
export MODEL_URL MODEL_CLIENT LLM_USER_PATH
cat >llm/extra-openai-models.yaml <<YAML
- model_id: stand-in
  model_name: stand-in
  api_base: $MODEL_URL
YAML

# The repository to which the agent pushes. Its hook delays a push while the file `slow` exists.
git init --quiet --bare published.git
cat >published.git/hooks/pre-receive <<HOOK
#!/bin/sh
: >"$work/receiving"
while [ -e "$work/slow" ]; do sleep 0.05; done
HOOK
chmod +x published.git/hooks/pre-receive
git clone --quiet published.git checkout 2>/dev/null
git -C checkout config user.name author
git -C checkout config user.email author@example.com

"$DORMOUSE" init >/dev/null
# Shorten the times of agent.toml.
sed 's/^timeout = "90m"/timeout = "5m"/; s/^SAVE_EVERY = "30s"/SAVE_EVERY = "300ms"/' "$here/agent.toml" >agent.toml
"$DORMOUSE" create author --from agent.toml >/dev/null
"$DORMOUSE" start author >/dev/null

say "1. The author gets a request for a text. The model has written two lines and works on the third."
echo 2 >model/pace
dormouse enqueue author "Eight lines on dormice, please"
begin_tick
until_true "line 2" model_has_said 2
dormouse get author execution.state

say "   The operator asks the turn to yield. safe-point ends $client, and the turn saves the two lines."
dormouse preempt author --reason "the machine is needed"
end_tick
dormouse get author execution.state
is_saved 2 || fail "two lines are not saved"

say "2. The turn is resumed and continues after line 2. Then the operator sends an interjection, in the middle of a line."
dormouse resume author
echo 3 >model/pace
begin_tick
until_true "line 3" model_has_said 3
dormouse enqueue author --priority interject "more briskly"
until_true "the operator's words reached the model" grep -q 'The operator says: more briskly' model/asked

say "3. Part 1 is complete, and the turn pushes it. During the slow push the operator asks the turn to yield again."
: >slow
echo 4 >model/pace
until_true "the push" [ -e receiving ]
dormouse preempt author --reason "the machine is needed again"
dormouse get author execution.state
kill -0 "$tick" || fail "the turn has ended in its push"

say "   The push is a critical section. When it has ended, the turn yields:"
rm slow
end_tick
published

say "4. The turn continues with part 2. In the middle of that the tick is killed, and the turn with it."
echo 6 >model/pace
dormouse resume author
begin_tick
until_true "line 6 is saved" is_saved 6
echo "\$ kill -9 TICK"
kill -9 "$tick"
wait "$tick" 2>/dev/null || :
tick=
rm model/pace

say "   The next step records the interruption. \`recover\` ends the pause of half a minute. The next run continues after line 6, in the same attempt:"
dormouse tick author || same "$?" 7 "exit status of a step that found a killed turn"
dormouse recover author
dormouse tick author --until-idle
same "$(published | grep -c .)" 8 "lines that are published"
published

say "   The usage of the runs of this message, as the model reported it:"
"$DORMOUSE" --json run list -a author | jq -c 'select(.usage) | .terminal, .usage'

say "5. Another text. The model answers 429 and names a pause of forty minutes."
echo 2400 >model/limit
dormouse enqueue author "The same again"
dormouse tick author
asked=$(requests)
dormouse tick author
same "$(requests)" "$asked" "requests during the pause"
dormouse get author held.deferred
dormouse next-wake author

say "   Forty minutes later:"
rm model/limit
DORMOUSE_NOW=$("$DORMOUSE" next-wake author)
export DORMOUSE_NOW
dormouse tick author
dormouse run list -a author
dormouse doctor

# Each part was pushed once.
same "$(git -C published.git log --reverse --format=%s | tr '\n' ',')" "Part 1,Part 2,Part 1,Part 2," "what was pushed"
