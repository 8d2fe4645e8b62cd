# SPDX-License-Identifier: Apache-2.0
"""Runs a job on its own input, and times it.

Prints label_image's own log lines. Neither reads pictures nor decodes results.
"""

from __future__ import annotations

import logging

from delegate.inspect import Graph
from label_image.console import (
    delegate_failures,
    interpreter_state,
    profile_lines,
    warn_of_nothing_taken,
)
from label_image.heads.final_boxes import zero_unused_rows
from label_image.run_result import RunResult
from tflite_opencl.console import interrupts
from tflite_opencl.harness.job import Job
from tflite_opencl.harness.open_job import OpenInterpreter, delegate_names, open_interpreter
from tflite_opencl.interpreters.runtime import Runtime

log = logging.getLogger("label_image")
results = logging.getLogger("label_image.results")
stdout = logging.getLogger("tflite_opencl.stdout")


def run(job: Job, runtime: Runtime, graph: Graph) -> RunResult:
    """Run the job and close its path; after Ctrl-C there are the times so far and no outputs.

    Raises: as `open_path`.
    """
    announced = [] if job.is_silent else delegate_names(job)
    with delegate_failures(), open_interpreter(job, runtime, graph, announced) as opened:
        if not job.is_silent:
            _log_state(job, graph, opened)
        times = opened.measure(job.count, job.warmup_runs)
        if not job.is_silent:
            log.info("invoked")
            results.info("average time: %g ms", times.average_ms)
            if opened.delegation and job.profile_rows:
                for line in profile_lines(opened.profile(), job.profile_rows):
                    results.info("%s", line)
        taken = opened.delegation
        if interrupts.was_pressed():  # Ctrl-C may have left outputs of the last run incomplete
            return RunResult(
                opened.load_ms, delegation=taken, load_parts=opened.load_parts, times=times
            )
        return RunResult(
            opened.load_ms,
            delegation=taken,
            load_parts=opened.load_parts,
            outputs=zero_unused_rows(graph, opened.outputs()),
            judged_by=opened.judge,
            times=times,
            profile=opened.node_profile(graph) if job.profile_rows else None,
            trace=opened.trace(f"label_image, {taken.device}") if taken and job.trace else None,
            longer=opened.measure_longer(job.longer_s) if job.longer_s else None,
        )


def _log_state(job: Job, graph: Graph, opened: OpenInterpreter) -> None:
    """Log what the delegates took."""
    taken = opened.delegation
    warn_of_nothing_taken(taken, graph)
    if job.verbose:
        reasons = {each.node: each.reason for each in taken.verdicts} if taken else None
        stdout.info("%s", interpreter_state(graph, reasons))
