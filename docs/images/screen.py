"""Draws what `tmux capture-pane -p -e` prints as SVG. The argument is the number of columns."""

import re
import sys
from html import escape

COLUMN, ROW, EDGE = 8.4, 18, 14
COLORS = {1: "#ff7b72", 2: "#7ee787", 3: "#e3b341"}
PLAIN, BACK = "#d7dde3", "#12161c"

columns = int(sys.argv[1])
lines = sys.stdin.read().rstrip("\n").split("\n")
width, height = columns * COLUMN + 2 * EDGE, len(lines) * ROW + 2 * EDGE
out = [
    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
    f' height="{height:.0f}" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace"'
    ' font-size="14" role="img"><title>dormouse watch: agents on a terminal</title>',
    f'<rect width="100%" height="100%" rx="8" fill="{BACK}"/>',
]


def run(text, at, row, style):
    """A piece of a line in one style. Its width is given, so that every font keeps the columns."""
    color, wide = COLORS.get(style["color"], PLAIN), len(text) * COLUMN
    x, y = EDGE + at * COLUMN, EDGE + row * ROW
    back = None
    if style["inverse"]:
        color, back = BACK, color
        out.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="{ROW}" fill="{back}"/>')
    # Blanks at the ends would be lost, and are not seen.
    begins = len(text) - len(text.lstrip(" "))
    text = text.strip(" ")
    if not text:
        return
    x += begins * COLUMN
    weight = ' font-weight="bold"' if style["bold"] else ""
    dim = ' opacity="0.6"' if style["dim"] else ""
    out.append(
        f'<text x="{x:.1f}" y="{y + 13}" textLength="{len(text) * COLUMN:.1f}" xml:space="preserve"'
        f' fill="{color}"{weight}{dim}>{escape(text)}</text>'
    )


# A style holds until another begins, also over the end of a line.
style = {"color": None, "bold": False, "dim": False, "inverse": False}
for row, line in enumerate(lines):
    at = 0
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        if not part.startswith("\x1b"):
            if part:
                run(part, at, row, style)
                at += len(part)
            continue
        codes = [int(code or 0) for code in part[2:-1].split(";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                style.update(color=None, bold=False, dim=False, inverse=False)
            elif code == 1:
                style["bold"] = True
            elif code == 2:
                style["dim"] = True
            elif code == 7:
                style["inverse"] = True
            elif code == 22:
                style.update(bold=False, dim=False)
            elif code == 27:
                style["inverse"] = False
            elif 30 <= code <= 37:
                style["color"] = code - 30
            elif code == 38:
                style["color"] = codes[1]
                del codes[:2]
            elif code == 39:
                style["color"] = None
out.append("</svg>")
print("\n".join(out))
