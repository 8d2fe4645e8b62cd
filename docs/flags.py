# SPDX-License-Identifier: Apache-2.0
"""Write the tables of flags in docs/label_image.md, from the flags themselves.

python -m docs.flags
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from label_image.flag_fields import FlagRow
from label_image.flag_table import ALL, TFLITE

DOCUMENT = Path(__file__).with_name("label_image.md")
HEADING = "## All flags\n\n"
_NO_EFFECT = "TFLite's flags that are accepted and do nothing here, with a WARN"


def text() -> str:
    """Return what stands below the heading."""
    works = {name: row for name, row in ALL.items() if not row.no_effect}
    tflite = {name: row for name, row in works.items() if name in TFLITE}
    own = {name: row for name, row in works.items() if name not in TFLITE}
    why: dict[str, list[str]] = {}
    for name, row in ALL.items():
        if row.no_effect:
            why.setdefault(row.no_effect, []).append(_names(name, row))
    tables = (
        ("TFLite's flags", "what it does", _rows(tflite)),
        ("Our own flags", "what it does", _rows(own)),
        (_NO_EFFECT, "why", ((", ".join(names), each) for each, names in why.items())),
    )
    return "\n\n".join(
        "\n".join(
            (f"{title}:\n", f"| flag | {heading} |", "|---|---|",
             *(f"| {flag} | {said} |" for flag, said in rows))
        )
        for title, heading, rows in tables
    ) + "\n"  # fmt: skip


def _rows(flags: Mapping[str, FlagRow]) -> Iterator[tuple[str, str]]:
    for name, row in flags.items():
        names = _names(name, row, f" {row.metavar}" if row.convert else "")
        yield f"[{names}]({row.page})" if row.page else names, row.text(has_detail=False)


def _names(name: str, row: FlagRow, value: str = "") -> str:
    short = f"`-{row.short}`, " if row.short else ""
    return f"{short}`--{name}{value}`".replace("|", "\\|")


if __name__ == "__main__":
    before, heading, _ = DOCUMENT.read_text().partition(HEADING)
    DOCUMENT.write_text(f"{before}{heading}{text()}")
