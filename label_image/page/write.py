# SPDX-License-Identifier: Apache-2.0
"""Writes the page of a run: one self-contained HTML file, replaced atomically."""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path as File
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from label_image.console import writing
from label_image.judgement import Judgement
from label_image.page.facts import NodeRow, machine, node_times, partition_rows, variables, versions
from label_image.prepare import PreparedRun
from label_image.report import comparison_facts, path_rows, refusals, speedup_facts
from label_image.run_result import RunResult
from tflite_opencl.console import interrupts
from tflite_opencl.console.files import write_file
from tflite_opencl.harness.job import Delegation

_LARGEST = 480  # pixels of the picture's longer side on the page
MOST_ROWS = 80  # nodes in the chart; the table has all
_WIDEST = 76.0  # percent of the chart's width, which leaves room for the time

log = logging.getLogger("label_image")

Paths = Mapping[str, tuple[RunResult, Sequence[str]]]  # a path's name -> its result and lines


def write_page(
    path: str,
    prepared: PreparedRun,
    judgement: Judgement,
    paths: Paths,
    picture: NDArray[Any] | None,
) -> None:
    """Measure what the run did not record, and write the page; after Ctrl-C there is none.

    `picture`: with results drawn; None: the model got other values.
    Raises: RunError: it cannot be written. KeyboardInterrupt: Ctrl-C was pressed here.
    """
    if interrupts.was_pressed():
        log.warning("%s is not written: Ctrl-C ended the run", path)
        return
    log.info("Times of nodes and facts of the machine are collected for %s", path)
    # An optional dependency.
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(File(__file__).parent), undefined=jinja2.StrictUndefined,
        autoescape=True, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["time"] = lambda spent: "" if spent is None else _time_text(spent)
    shown = _shown(prepared, judgement, paths, picture)
    text = environment.get_template("page.html").render(page=shown)
    interrupts.check()
    with writing(path):
        write_file(path, f"{text}\n")
    log.info("the report is in %s", path)


def _shown(
    prepared: PreparedRun, judgement: Judgement, paths: Paths, picture: NDArray[Any] | None
) -> dict[str, Any]:
    """Return the template's variables."""
    settings, results, gpu = prepared.settings, judgement.results, judgement.results.gpu
    taken = gpu.delegation if gpu else None
    rows, notes, parts = node_times(results.job, prepared.graph, prepared.runtime, gpu)
    chart = chart_of(rows)
    device = f" on {taken.device}" if taken else ""
    return {
        "title": f"label_image: {os.path.basename(prepared.model.name)}{device}",
        "command": shlex.join(["label_image", *settings.command]),
        "failure": _failure(judgement, taken),
        "picture": picture_uri(picture),
        "summary": _summary(prepared, judgement, picture),
        "results": {name: lines for name, (_, lines) in paths.items()},
        "headings": [*paths],
        "times": path_rows([result for result, _ in paths.values()]),
        "nodes": rows,
        "notes": notes,
        "parts": parts,
        "has_device": any(row.device is not None for row in rows),
        "has_cpu": any(row.cpu is not None for row in rows),
        "chart": chart,
        "left_out": sum(map(_is_timed, rows)) - len(chart),
        "partitions": partition_rows(taken),
        "refusals": refusals(taken),
        "machine": machine(taken, results.job.opencl is not None),
        "versions": versions(prepared.runtime),
        "variables": variables(os.environ),
    }


def _failure(judgement: Judgement, taken: Delegation | None) -> str:
    if judgement.results.gpu is None and judgement.failure:
        return f"OpenCL failed, and the CPU ran the model: {judgement.failure}"
    if judgement.failure or taken is None or taken.delegated:
        return judgement.failure
    count = len(taken.verdicts)
    return f"The OpenCL delegate took none of the model's {count} nodes: the CPU ran them all."


def _summary(
    prepared: PreparedRun, judgement: Judgement, picture: NDArray[Any] | None
) -> list[tuple[str, str]]:
    settings, source, nodes = prepared.settings, prepared.model.source, len(prepared.graph.nodes)
    content = source if isinstance(source, bytes) else File(source).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    whole = f"{len(content)} bytes, {nodes} nodes, sha256 {digest}"
    rows = [("model", f"{prepared.model.name}, {whole}")]
    if picture is not None:
        height, width = picture.shape[:2]
        rows.append(("picture", f"{settings.image}, {width} x {height} pixels"))
    threads = "as many threads as TFLite takes"
    if settings.cpu_threads is not None:
        threads = f"{settings.cpu_threads} thread" + "s" * (settings.cpu_threads != 1)
    rows.append(("timed runs", f"{settings.count}, after {settings.warmup_runs} others, {threads}"))
    if judgement.results.gpu is not None:
        rows += comparison_facts(judgement, prepared.kernels)
        rows += speedup_facts(judgement)
    elif settings.external_delegate_path:
        rows.append(("external delegate", settings.external_delegate_path))
    else:
        why = "failed: the CPU ran the model" if judgement.failure else "--use_gpu was not given"
        rows.append(("OpenCL", why))
    return rows


def picture_uri(picture: NDArray[Any] | None) -> str:
    """Return a picture as the source of an <img>; "" for none. Shapes: (h, w, 3)."""
    if picture is None:
        return ""
    image = Image.fromarray(picture)
    image.thumbnail((_LARGEST, _LARGEST))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=88)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def chart_of(rows: Sequence[NodeRow]) -> list[tuple[str, list[tuple[str, float, str]]]]:
    """Return the slowest nodes, in graph order: a label, and a bar for each time.

    A bar is "device" or "cpu", percent of the chart's width, and a text.
    """
    longest = sorted(filter(_is_timed, rows), key=_longest, reverse=True)[:MOST_ROWS]
    widest = max(map(_longest, longest), default=0.0) or 1.0
    groups = []
    for row in sorted(longest, key=lambda row: row.index):
        bars = [
            (css, round(_WIDEST * spent / widest, 2), _time_text(spent))
            for css, spent in (("device", row.device), ("cpu", row.cpu))
            if spent is not None
        ]
        home = "" if row.home is None else f" (OpenCL: in {row.home})"
        groups.append((f"{row.index} {row.op} {row.shape}".rstrip() + home, bars))
    return groups


def _is_timed(row: NodeRow) -> bool:
    return row.device is not None or row.cpu is not None


def _time_text(microseconds: float) -> str:
    """Return "1.24 ms" or "56.3 us"."""
    if microseconds >= 1000:
        return f"{microseconds / 1000:.2f} ms"
    return f"{microseconds:.1f} us"


def _longest(row: NodeRow) -> float:
    return max(row.device or 0.0, row.cpu or 0.0)
