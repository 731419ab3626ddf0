#!/bin/sh
# One turn of the reviewer: makes a review from the payload of a pull request. A real turn would call a model instead
# of the jq filter.
set -eu
number=$(jq -r .message.body.value.number "$DORMOUSE_CONTEXT")
jq -r '
    .message as $message | $message.body.value as $hook
    | "# \($hook.repository.full_name)#\($hook.number): \($hook.pull_request.title)",
      "",
      "by \($hook.pull_request.user.login), at \($hook.pull_request.head.sha[:7]), told by \($message.origin.kind):\($message.origin.id)",
      "",
      (if $hook.pull_request.title | startswith("WIP") then "- It says that it is not done yet." else "- Nothing to remark." end)
' "$DORMOUSE_CONTEXT" >"review-$number.md.new"
mv "review-$number.md.new" "review-$number.md"
echo "reviewed #$number"
