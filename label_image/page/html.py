# SPDX-License-Identifier: Apache-2.0
"""The page as text: one file of HTML that needs nothing else."""

from __future__ import annotations

import base64
import importlib.util
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from label_image.page.chart import chart_of, time_text
from label_image.page.facts import NodeTimes

NEEDS = "jinja2 (pip install tflite-opencl[suite])"
_LARGEST = 480  # pixels of the picture's longer side on the page

Rows = Sequence[tuple[str, str]]  # names and values


@dataclass(frozen=True, slots=True)
class Page:
    """All that is shown; texts are for people."""

    title: str
    command: str
    failure: str  # what went wrong; "": nothing
    picture: str  # a data: URI; "": there was none
    summary: Rows
    results: Mapping[str, Sequence[str]]  # a path's name -> its lines
    headings: Sequence[str]  # of the times' columns
    times: Sequence[tuple[str, Sequence[str]]]
    nodes: NodeTimes
    partitions: Rows
    refusals: Sequence[tuple[str, int, str, str]]  # op, count, reason, nodes
    machine: Sequence[tuple[str, Rows]]
    versions: Rows
    variables: Rows


def can_make() -> bool:
    """Whether what a page needs is installed."""
    return importlib.util.find_spec("jinja2") is not None


def html(page: Page) -> str:
    """Return the page; raises ImportError without jinja2."""
    # Imported here: it is an extra.
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["time"] = lambda spent: "" if spent is None else time_text(spent)
    text = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    return environment.from_string(text).render(page=page, chart=chart_of(page.nodes))


def picture_uri(picture: NDArray[Any] | None) -> str:
    """Return a picture as the content of an <img>; "" for none. Shapes: (h, w, 1, 3 or 4)."""
    if picture is None:
        return ""
    pixels = picture[:, :, 0] if picture.shape[2] == 1 else picture
    image = Image.fromarray(pixels).convert("RGB")
    image.thumbnail((_LARGEST, _LARGEST))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=88)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
