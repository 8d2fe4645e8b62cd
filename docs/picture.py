# SPDX-License-Identifier: Apache-2.0
"""Draw README's picture: run the main command in a terminal and save what the terminal shows.

Run in a checkout where the extra `demo` is installed, on a machine that does nothing else:

    python docs/picture.py

It writes docs/label_image.svg. Look at the picture before you commit it.
"""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import sys
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

COMMAND = "label_image --use_gpu --image grace_hopper.bmp"  # as in README.md
PICTURE = Path(__file__).with_name("label_image.svg")
WIDTH = 92


def shown(command: str) -> str:
    """Return everything the command writes to its terminal.

    Raises:
        RuntimeError: the command failed.
    """
    script, *arguments = shlex.split(command)
    # Both, as a dumb terminal is 80 columns wide where the lines are not given.
    os.environ |= {"COLUMNS": str(WIDTH), "LINES": "60"}
    os.environ["TERM"] = "dumb"  # progress bars move the cursor, which a picture cannot
    written = bytearray()

    def keep(descriptor: int) -> bytes:
        data = os.read(descriptor, 1024)
        written.extend(data)
        return data

    status = pty.spawn([sys.executable, "-m", script, *arguments], keep)
    if status:
        raise RuntimeError(f"{command}: exit code {os.waitstatus_to_exitcode(status)}")
    return written.decode().replace("\r\n", "\n")


def shortened(text: str) -> str:
    """Return the text with this machine's folders named as a reader's are."""
    text = re.sub(r"/\S*/(?=\.venv/)", "", text)
    return text.replace(str(Path.home()), "~")


def draw(command: str, text: str) -> str:
    """Return an SVG of a terminal that shows the command and the text."""
    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True)
    console.print(Text.assemble(("$ ", "bold"), (command, "bold")))
    console.print(Text.from_ansi(text.rstrip()))
    # A picture in a README may load no font: the reader's own monospaced font is used.
    style = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    style = style.replace("Fira Code, monospace", "DejaVu Sans Mono, Consolas, Menlo, monospace")
    return console.export_svg(
        title="tflite-opencl", theme=SVG_EXPORT_THEME, code_format=style, unique_id="terminal"
    )


if __name__ == "__main__":
    PICTURE.write_text(draw(COMMAND, shortened(shown(COMMAND))))
