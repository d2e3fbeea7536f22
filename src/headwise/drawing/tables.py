"""HTML tables of numbers with labels; every text is escaped."""

from collections.abc import Sequence
from html import escape

FULL_ROWS, FULL_COLUMNS = 20, 16
"""Matrices up to this size are shown in full, here and in the terminal."""

STYLE = (
    "<style>.headwise{font:14px/1.45 system-ui,sans-serif;color:#1b1b1b;background:#fff;"
    "overflow-x:auto}body.headwise{margin:2em auto;padding:0 1em;max-width:72em}"
    ".headwise table{border-collapse:collapse;margin:.6em 0}"
    ".headwise td,.headwise th{padding:.15em .6em;text-align:right;border-bottom:1px solid #ddd;"
    "font-variant-numeric:tabular-nums}.headwise th{font-weight:600}"
    ".headwise td:first-child,.headwise th:first-child,.headwise .words *{text-align:left}"
    ".headwise svg{max-width:100%;height:auto}</style>"
)


def is_small(rows: int, columns: int) -> bool:
    """Whether a matrix can be read in full."""
    return rows <= FULL_ROWS and columns <= FULL_COLUMNS


def words_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in heading)
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<table class="words"><tr>{head}</tr>{body}</table>'


def number_table(
    values: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str]
) -> str:
    """A small matrix in full; of a large one its size."""
    if not is_small(len(rows), len(columns)):
        return f"<p>{len(rows)} x {len(columns)} numbers</p>"
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = []
    for name, row in zip(rows, values, strict=True):
        cells = "".join(f"<td>{round(value, 3) + 0.0:.3f}</td>" for value in row)
        lines.append(f"<tr><th>{escape(name)}</th>{cells}</tr>")
    return f"<table><tr><th></th>{head}</tr>{''.join(lines)}</table>"


def page(title: str, body: str) -> str:
    """A page that needs no other file."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>{STYLE}</head>"
        f'<body class="headwise">{body}</body></html>\n'
    )
