#!/bin/sh
# One turn of an agent that reviews commits. The message names one: `dormouse enqueue AGENT HEAD`, or from a hook of
# git, `dormouse enqueue AGENT "$(git rev-parse HEAD)"`. The review is a file of its own. Needs git and jq.
#
#   What it is told   is JSON on stdin, and in the file $DORMOUSE_CONTEXT (`dormouse schema context`)
#   What it says      on stdout is kept with the run; the last line is its brief
#   How it ends       0: done. 75: not now, try later. Anything else: failed, and tried again later
#
# This file is yours: change it as you like, the next turn runs what stands here then.
set -eu

# The name of a commit, and nothing else: what it looks like is checked, and git never takes it for an option.
named=$(jq -r '.message.body | .text // .value.commit // "" | tostring' "$DORMOUSE_CONTEXT")
case $named in
'' | -* | *[!A-Za-z0-9._/@^~-]*)
    echo "the message names no commit" >&2
    exit 1
    ;;
esac
in_repository() { git -C "$REVIEW_REPOSITORY" --no-pager "$@"; }
if ! commit=$(in_repository rev-parse --quiet --verify "$named^{commit}"); then
    echo "there is no commit $named in $REVIEW_REPOSITORY" >&2
    exit 1
fi

mkdir -p "$REVIEW_DIR"
new=$(mktemp "$REVIEW_DIR/.review.XXXXXX")
trap 'rm -f "$new" "$new.remarks"' EXIT
: >"$new.remarks"
remark() { printf -- '- %s\n' "$*" >>"$new.remarks"; }

# ---- Your review goes here: linters, tests, a model. Each remark is a line. ----
subject=$(in_repository show --no-patch --format=%s "$commit")
[ "${#subject}" -le 72 ] || remark "The subject has ${#subject} characters; 72 are shown everywhere."
case $subject in
[Ww][Ii][Pp]* | fixup!* | squash!*) remark "The subject says that this is not finished." ;;
esac
in_repository show --no-ext-diff --format= --check "$commit" >/dev/null || remark "There are white space errors: git show --check."

# The review appears whole or not at all, and a second attempt puts the same one in its place.
remarks=$(($(wc -l <"$new.remarks")))
{
    printf '# %s\n\n%s\n\n' "$commit" "$subject"
    cat "$new.remarks"
} >"$new"
chmod a+r "$new"
mv "$new" "$REVIEW_DIR/$commit.md"

echo "reviewed $(in_repository rev-parse --short "$commit"): $remarks remarks"
