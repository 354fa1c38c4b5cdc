# SPDX-License-Identifier: BSD-3-Clause
"""One SVG: a group of bars for each row, with the range of the samples.

Each row has a scale of its own, since rows differ in unit and by orders of
magnitude: bars compare servers in a row, the figures beside them say how much.
"""

from __future__ import annotations

from xml.sax.saxutils import escape

from .model import Results
from .summary import figures
from .write import number

COLOURS = ("#4477aa", "#66ccee", "#228833", "#ee6677", "#ccbb44", "#aa3377", "#777777")
LABEL, BAR, WIDTH, LINE, GAP = 250, 420, 800, 18, 14


def svg(title: str, results: Results) -> str:
    body: list[str] = []

    def text(x: float, y: float, words: str, extra: str = "") -> None:
        body.append(f'<text x="{x:.0f}" y="{y:.0f}"{extra}>{escape(words)}</text>')

    text(10, 22, title, ' font-size="15" font-weight="bold"')
    y = 40.0
    for row in results.rows:
        cells = [
            (i, column.name, figures([s.value for s in cell]))
            for i, column in enumerate(results.columns)
            if (cell := results.cells.get((row.name, column.name)))
        ]
        most = max(f.maximum for _, _, f in cells) or 1.0
        better = "less" if row.less_is_better else "more"
        text(10, y + 13, f"{row.name}, {row.unit} ({better} is better)", ' fill="#333"')
        y += LINE + 2
        for i, name, f in cells:
            colour = COLOURS[i % len(COLOURS)]
            length = BAR * f.median / most
            text(LABEL - 8, y + 12, name, ' text-anchor="end"')
            body.append(
                f'<rect x="{LABEL}" y="{y:.0f}" width="{length:.1f}" '
                f'height="{LINE - 4}" fill="{colour}"/>'
            )
            low, high = (LABEL + BAR * v / most for v in (f.minimum, f.maximum))
            body.append(
                f'<path d="M{low:.1f} {y + 7:.0f}H{high:.1f}" stroke="#000"/>'
            )
            text(max(high, LABEL + length) + 6, y + 12, number(f.median))
            y += LINE
        y += GAP
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y:.0f}" '
        f'viewBox="0 0 {WIDTH} {y:.0f}" font-family="sans-serif" font-size="12">'
    )
    background = f'<rect width="{WIDTH}" height="{y:.0f}" fill="#fff"/>'
    return "\n".join([head, background, *body, "</svg>", ""])
