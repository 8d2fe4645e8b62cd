# SPDX-License-Identifier: Apache-2.0
"""A run -> its page, in a file that is whole or not there."""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from label_image.classify import PathRun
from label_image.errors import writing
from label_image.page.facts import (
    machine,
    node_times,
    partition_rows,
    variables,
    versions,
)
from label_image.page.html import Page, Rows, html, picture_uri
from label_image.prepare import Prepared
from label_image.ran import Ran
from label_image.report import comparison_facts, refusals, speedup_facts, time_rows
from tflite_opencl.common import interrupts
from tflite_opencl.common.files import write_file
from tflite_opencl.common.job import Delegation

log = logging.getLogger("label_image")

Paths = Mapping[str, tuple[PathRun, Sequence[str]]]  # a path's name -> it, and its lines


def write_page(
    path: str,
    prepared: Prepared,
    ran: Ran,
    paths: Paths,
    picture: NDArray[Any] | None,
) -> None:
    """Measure and ask what the run did not tell, and write the page; after Ctrl-C there is none.

    `picture`: with what was found in it; None: the model got other values.
    Raises: RunError: it cannot be written. KeyboardInterrupt: Ctrl-C was pressed here.
    """
    if interrupts.was_pressed():
        log.warning("%s is not written: Ctrl-C ended the run", path)
        return
    log.info("Times of nodes and facts of the machine are collected for %s", path)
    text = html(_page(prepared, ran, paths, picture))
    interrupts.check()
    with writing(path):
        write_file(path, f"{text}\n")
    log.info("the report is in %s", path)


def _page(prepared: Prepared, ran: Ran, paths: Paths, picture: NDArray[Any] | None) -> Page:
    settings, gpu = prepared.settings, ran.gpu
    taken = gpu.delegation if gpu else None
    in_child = settings.device_timeout > 0
    nodes = node_times(ran.job, prepared.graph, prepared.runtime, gpu, in_child)
    device = f" on {taken.device}" if taken else ""
    return Page(
        title=f"label_image: {os.path.basename(prepared.model.name)}{device}",
        command=shlex.join(["label_image", *settings.command]),
        failure=_failure(ran) or _nothing_taken(taken),
        picture=picture_uri(picture),
        summary=_summary(prepared, ran, picture),
        results={name: lines for name, (_, lines) in paths.items()},
        headings=[*paths],
        times=time_rows([run for run, _ in paths.values()]),
        nodes=nodes,
        partitions=partition_rows(taken),
        refusals=refusals(taken) if taken else (),
        machine=machine(taken, ran.job.opencl is not None),
        versions=versions(prepared.runtime),
        variables=variables(os.environ),
    )


def _failure(ran: Ran) -> str:
    if ran.gpu is None and ran.failure:
        return f"OpenCL failed, and the CPU ran the model: {ran.failure}"
    return ran.failure


def _nothing_taken(taken: Delegation | None) -> str:
    if taken is None or taken.delegated:
        return ""
    count = len(taken.verdicts)
    return f"The OpenCL delegate took none of the model's {count} nodes: the CPU ran them all."


def _summary(prepared: Prepared, ran: Ran, picture: NDArray[Any] | None) -> Rows:
    settings, gpu = prepared.settings, ran.gpu
    rows = [("model", _model_text(prepared))]
    if picture is not None:
        height, width = picture.shape[:2]
        rows.append(("picture", f"{settings.image}, {width} x {height} pixels"))
    threads = "as many threads as TFLite takes"
    if settings.threads is not None:
        threads = f"{settings.threads} thread" + "s" * (settings.threads != 1)
    rows.append(("timed runs", f"{settings.count}, after {settings.warmup_runs} others, {threads}"))
    if gpu is not None and gpu.delegation is not None:
        rows += comparison_facts(gpu.delegation, ran.comparison, prepared.kernels)
        rows += speedup_facts(gpu, ran.comparison.cpu if ran.comparison else None)
        if ran.comparison is None:
            rows.append(("outputs", "not compared: --compare=false"))
    elif settings.external_delegate_path:
        rows.append(("external delegate", settings.external_delegate_path))
    else:
        why = "failed: the CPU ran the model" if ran.failure else "--use_gpu was not given"
        rows.append(("OpenCL", why))
    return rows


def _model_text(prepared: Prepared) -> str:
    source, graph = prepared.model.source, prepared.graph
    content = source if isinstance(source, bytes) else Path(source).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    return f"{prepared.model.name}, {len(content)} bytes, {len(graph.nodes)} nodes, sha256 {digest}"
