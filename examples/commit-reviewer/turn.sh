#!/bin/sh
# One turn of the commit reviewer: reads the commit that the message names and writes a note.
# Needs git and jq.
#
# The message comes from a webhook, so it is evidence: the turn takes only the commit from it.
# agent.toml sets the repository and the directory of the notes: REVIEW_REPOSITORY and REVIEW_NOTES.
set -eu

commit=$(jq -r '.message.body.value.commit // ""' "$DORMOUSE_CONTEXT")
case $commit in
    '' | *[!0-9a-f]*) echo "the payload names no commit: '$commit'" >&2; exit 1 ;;
esac
in_repository() { git -C "$REVIEW_REPOSITORY" --no-pager "$@"; }
if ! in_repository cat-file -e "$commit^{commit}" 2>/dev/null; then
    echo "no commit $commit in $REVIEW_REPOSITORY" >&2
    exit 1
fi

# A review may need a service that is unreachable for a while. This simulates that once, for one commit.
if [ "$commit" = "${REVIEW_UNREACHABLE_FOR:-}" ] && [ "$DORMOUSE_ATTEMPT" -eq 1 ]; then
    echo "the code host is unreachable (pretended, on attempt 1)" >&2
    exit 1
fi

# The note is renamed into place when it is complete, and a second attempt replaces it by an equal one.
mkdir -p "$REVIEW_NOTES"
work=$(mktemp -d "$REVIEW_NOTES/.review.XXXXXX")
trap 'rm -rf "$work"' EXIT
remarks=$work/remarks
: >"$remarks"
remark() { printf -- '- %s\n' "$*" >>"$remarks"; }

subject=$(in_repository show --no-patch --format=%s "$commit")
body=$(in_repository show --no-patch --format=%b "$commit")
parents=$(in_repository show --no-patch --format=%P "$commit" | wc -w)
# A merge is compared with its first parent, and the first commit with an empty tree.
if [ "$parents" -eq 0 ]; then before=$(in_repository hash-object -t tree /dev/null); else before=$commit^1; fi
in_repository diff --no-ext-diff --no-color "$before" "$commit" >"$work/diff"
in_repository diff --no-ext-diff --numstat "$before" "$commit" >"$work/numstat"
added=$(awk '$1 != "-" { sum += $1 } END { print sum + 0 }' "$work/numstat")
removed=$(awk '$2 != "-" { sum += $2 } END { print sum + 0 }' "$work/numstat")
files=$(wc -l <"$work/numstat")

# Remarks about the commit message.
if [ "${#subject}" -gt 72 ]; then remark "The subject has ${#subject} characters; 72 fit everywhere."; fi
case $subject in
    *.) remark "The subject ends with a full stop." ;;
    [Ww][Ii][Pp]* | fixup!* | squash!*) remark "The subject says that this is not finished." ;;
esac
if [ -z "$body" ] && [ $((added + removed)) -gt 50 ]; then
    remark "$((added + removed)) lines change, and the message does not say why."
fi

# Remarks about the changed lines.
if [ $((added + removed)) -gt 1000 ]; then
    remark "$((added + removed)) lines change: hard to read as one piece."
fi
if ! in_repository diff --no-ext-diff --check "$before" "$commit" >"$work/check"; then
    remark "Whitespace: $(grep -c '^[^+]*:[0-9]*: ' "$work/check" || true) lines that git diff --check complains of."
fi
todos=$(grep -cE '^\+([^+].*)?\b(TODO|FIXME|XXX)\b' "$work/diff" || true)
if [ "$todos" -gt 0 ]; then remark "$todos new lines with TODO, FIXME or XXX."; fi
binaries=$(awk '$1 == "-"' "$work/numstat" | wc -l)
if [ "$binaries" -gt 0 ]; then remark "$binaries binary files change."; fi
in_repository diff --no-ext-diff --no-renames --diff-filter=d --raw --abbrev=40 "$before" "$commit" |
    awk '{ print $4 }' | in_repository cat-file --batch-check='%(objecttype) %(objectsize)' |
    awk '$1 == "blob" && $2 > 500000 { count++ } END { print count + 0 }' >"$work/large"
if [ "$(cat "$work/large")" -gt 0 ]; then remark "$(cat "$work/large") files are larger than 500 kB."; fi
if awk '$3 ~ /^src\// { found = 1 } END { exit !found }' "$work/numstat" &&
    ! awk '$3 ~ /test/ { found = 1 } END { exit !found }' "$work/numstat" &&
    ! grep -qE '^\+.*(#\[test\]|assert)' "$work/diff"; then
    remark "src/ changes, and no test does."
fi

count=$(wc -l <"$remarks")
{
    printf '# %s\n\n' "$subject"
    in_repository show --no-patch --format='Commit %H by %an, %as.' "$commit"
    printf '%s files, %s lines added, %s removed.\n\n' "$files" "$added" "$removed"
    printf '## Remarks\n\n'
    if [ "$count" -eq 0 ]; then printf 'None.\n'; else cat "$remarks"; fi
    printf '\n## Files\n\n```text\n'
    in_repository diff --no-ext-diff --stat=90 --stat-count=20 "$before" "$commit"
    printf '```\n'
} >"$work/note"
mv "$work/note" "$REVIEW_NOTES/$commit.md"

short=$(in_repository rev-parse --short "$commit")
jq -n --arg brief "$short: $count remarks ($subject)" '{brief: $brief}' >"$DORMOUSE_OUTCOME"
