# SPDX-License-Identifier: Apache-2.0
"""Write the table of flags in docs/label_image.md, from the flags themselves.

python -m docs.flags
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from label_image.flag_fields import FlagRow
from label_image.flag_table import ALL, TFLITE

DOCUMENT = Path(__file__).with_name("label_image.md")
HEADING = "## Flags\n\n"
_BEFORE = """`label_image --help_all` and the [manual page](shell.md) describe all flags, and say
why some of TFLite's do nothing here. The table has those of `--help` that TFLite's tool lacks."""


def text() -> str:
    """Return what stands below the heading."""
    own = {name: row for name, row in ALL.items() if row.is_common and name not in TFLITE}
    rows = (f"| {flag} | {said} |" for flag, said in _rows(own))
    return "\n".join((f"{_BEFORE}\n", "| flag | what it does |", "|---|---|", *rows)) + "\n"


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
