#!/bin/sh
# One turn: reviews the commit that the message names, and writes a file. Needs git and jq. Send
# `dormouse enqueue AGENT HEAD`, or in a git hook `dormouse enqueue AGENT "$(git rev-parse HEAD)"`.
#
#   Input         JSON on stdin and in the file $DORMOUSE_CONTEXT (`dormouse schema context`)
#   Output        stdout is kept with the run; its last line is the brief (summary) of the turn
#   Exit status   0: done. 75: deferred until later. Any other: failed, and retried later
#
# You can edit this file. The next turn runs the edited script.
set -eu

# The message must be a commit name. The pattern keeps git from taking the name for an option.
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

# ---- Your review goes here: linters, tests, a model. `remark` adds a line to the review. ----
subject=$(in_repository show --no-patch --format=%s "$commit")
[ "${#subject}" -le 72 ] || remark "The subject has ${#subject} characters; 72 are shown everywhere."
case $subject in
[Ww][Ii][Pp]* | fixup!* | squash!*) remark "The subject says that this is not finished." ;;
esac
in_repository show --no-ext-diff --format= --check "$commit" >/dev/null || remark "There are white space errors: git show --check."

# The complete review is renamed into place. A second attempt replaces it by an equal file.
remarks=$(($(wc -l <"$new.remarks")))
{
    printf '# %s\n\n%s\n\n' "$commit" "$subject"
    cat "$new.remarks"
} >"$new"
chmod a+r "$new"
mv "$new" "$REVIEW_DIR/$commit.md"

echo "reviewed $(in_repository rev-parse --short "$commit"): $remarks remarks"
