"""Draw the committed screens of the app, a page for each look: `python -m tools.gallery OUT`."""

import argparse
import html
from itertools import groupby
from pathlib import Path

from tests.helpers.app.screens import NAMED, Row, Rows, read

REPOSITORY = Path(__file__).resolve().parent.parent
_PAGE = '<!doctype html><meta charset="utf-8"><title>{}</title><style>{}</style>{}'
_CSS = "body{background:#888}pre{display:inline-block;margin:4px;line-height:1.2}"
# The sixteen colours of xterm.
_XTERM = """#000000 #cd0000 #00cd00 #cdcd00 #0000ee #cd00cd #00cdcd #e5e5e5
#7f7f7f #ff0000 #00ff00 #ffff00 #5c5cff #ff00ff #00ffff #ffffff"""
_SHOWN = dict(zip(NAMED, _XTERM.split(), strict=True))
_CSS_OF = {
    "bold": "font-weight:bold",
    "italic": "font-style:italic",
    "underline": "text-decoration:underline",
    "strike": "text-decoration:line-through",
}


def colors(style: str) -> tuple[str, str]:
    """The colours of the text and of its ground."""
    before, _, after = f" {style} ".partition(" on ")
    found = [
        next((w for w in part.split() if w[0] == "#" or w in NAMED), "") for part in (before, after)
    ]
    text, ground = (_SHOWN.get(name, name) for name in found)
    text, ground = text or "#e5e5e5", ground or "#000000"
    return (ground, text) if "reverse" in style else (text, ground)


def drawn(rows: Rows) -> str:
    return f"<pre>{'<br>'.join(map(_row, rows))}</pre>"


def _row(row: Row) -> str:
    at, parts = 0, []
    for style, cells in groupby(row.styles):
        end = at + len(list(cells))
        text, ground = colors(style)
        if "dim" in style.split():
            text = f"color-mix(in srgb,{text} 60%,{ground})"
        css = [
            f"color:{text}",
            f"background:{ground}",
            *(_CSS_OF[w] for w in style.split() if w in _CSS_OF),
        ]
        parts.append(f'<span style="{";".join(css)}">{html.escape(row.text[at:end])}</span>')
        at = end
    return "".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="the folder of the pages")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    pages: dict[str, list[str]] = {}
    for path in sorted((REPOSITORY / "tests" / "tui").rglob("__snapshots__/*/*.txt")):
        for size, looks in read(path.read_text(encoding="utf-8")).items():
            for look, rows in looks.items():
                title = html.escape(f"{path.stem} {size}")
                pages.setdefault(look, []).append(f"<h4>{title}</h4>{drawn(rows)}")
    for look, screens in pages.items():
        page = _PAGE.format(html.escape(look), _CSS, "".join(screens))
        (out / f"{look}.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
