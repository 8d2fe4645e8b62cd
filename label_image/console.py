# SPDX-License-Identifier: Apache-2.0
"""label_image's output on stdout and stderr: log records, errors, and the tables of --verbose.

A closed pipe is not an error.
"""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from typing import TextIO

import numpy as np

from delegate import DelegateError, NoDeviceError
from delegate.inspect import Graph, LaunchTime, Tensor, builtin_op_numbers
from tflite_opencl.cli.journal import journal_or
from tflite_opencl.cli.logs import Route, routed
from tflite_opencl.cli.messages import printable
from tflite_opencl.console import bars
from tflite_opencl.console.errors import (
    DelegateFailed,
    OneLineError,
    RunError,
    code_of,
    full_disk,
    reason_of,
)
from tflite_opencl.console.start import OutputError, lead_nowhere
from tflite_opencl.harness.job import Delegation, Job
from tflite_opencl.interpreters.runtime import TYPE_NUMBERS

_LEVEL_NAMES = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_CUSTOM = 32  # BuiltinOperator_CUSTOM

log = logging.getLogger("label_image")


def write(stream: TextIO, text: str) -> bool:
    """Write text and a line end at once; a closed pipe (`| head`) is not an error.

    Control characters are escaped, except line ends and tabs.
    Returns whether the stream still has a reader.
    Raises: OutputError: the text cannot be written.
    """
    text = printable(text, kept="\n\t")
    if stream.isatty() and bars.print_above(text):
        return True
    try:
        stream.write(text + "\n")
        stream.flush()
    except BrokenPipeError:
        lead_nowhere(stream)
        return False
    except OSError as error:
        lead_nowhere(stream)
        raise OutputError("stdout", error) from error
    return True


@contextlib.contextmanager
def logging_to(out: TextIO, err: TextIO, level: int) -> Iterator[None]:
    """Send log records of the delegate, tflite_opencl and label_image to `err`, as "INFO: text".

    Active inside the context. Records of `tflite_opencl.stdout` go to `out` unchanged. `level`: the
    lowest level logged; results, from `label_image.results`, always are.
    """
    lines: logging.Handler = _Handler(err, _Formatter())
    if err is sys.stderr:
        lines = journal_or(lines, "label_image")
    plain = _Handler(out, logging.Formatter("%(message)s"))
    routes: list[Route] = [
        (logging.getLogger("delegate"), lines, level),
        (logging.getLogger("label_image"), lines, level),
        (logging.getLogger("label_image.results"), lines, logging.INFO),
        (logging.getLogger("tflite_opencl"), lines, level),
        (logging.getLogger("tflite_opencl.stdout"), plain, max(level, logging.INFO)),
    ]
    with routed(routes):
        yield


class _Formatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:
        if record.levelno == logging.DEBUG:
            return record.message  # tables
        # A message stays on one line, whatever a file's name contains.
        level = _LEVEL_NAMES.get(record.levelname, record.levelname)
        return f"{level}: {printable(record.message)}"


class _Handler(logging.Handler):
    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        super().__init__()
        self._stream = stream
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        write(self._stream, self.format(record))


def log_error(error: Exception, verbose: bool) -> int:
    """Log the lines of an error and return its exit code.

    With `verbose`, the last line carries a traceback.
    """
    if isinstance(error, RunError) and isinstance(error.__cause__, (RuntimeError, ValueError)):
        log.error("%s", reason_of(error.__cause__))
    text = str(error)
    if not isinstance(error, (OneLineError, DelegateError)):
        unexpected = f"{type(error).__name__}: {text} (not expected: --verbose 1 shows where)"
        text = full_disk(error) or unexpected
    level = error.level if isinstance(error, RunError) else logging.ERROR
    log.log(level, "%s", text, exc_info=error if verbose else None)
    return code_of(error)


def log_messages(messages: Iterable[tuple[int, str]]) -> None:
    """Log texts, each at its level."""
    for level, text in messages:
        log.log(level, "%s", text)


def log_fallback(error: Exception, job: Job) -> None:
    """Log why OpenCL failed, and what runs the model instead."""
    log_error(error, job.verbose)
    who = f"{job.library} and the CPU run" if job.external else "the CPU runs"
    log.warning("%s the model instead", who)
    # Memory held by the failed run must not slow down the next one.
    traceback.clear_frames(error.__traceback__)


def warn_of_nothing_taken(taken: Delegation | None, graph: Graph) -> None:
    """Warn if the OpenCL delegate, or the other one, took no node."""
    if taken is not None and not graph.nodes:
        log.warning("the model has no operators: OpenCL has nothing to run")
    elif taken is not None and not taken.delegated:
        who = f"{taken.library} and the CPU run" if taken.others else "the CPU runs"
        text = "the OpenCL delegate took none of the model's %d nodes: %s them all"
        log.warning(text, len(graph.nodes), who)
    if taken is not None and taken.library and graph.nodes and not taken.others:
        text = "%s took none of the model's %d nodes; the delegate of the first flag chooses first"
        log.warning(text, taken.library, len(graph.nodes))


@contextlib.contextmanager
def delegate_failures() -> Iterator[None]:
    """Turn errors of the OpenCL delegate into DelegateFailed, except a missing device."""
    try:
        yield
    except NoDeviceError:
        raise
    except DelegateError as error:
        raise DelegateFailed(str(error)) from error


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turn an error while writing this file or folder into a RunError."""
    try:
        yield
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"cannot write {path}: {reason}") from error


def model_lines(graph: Graph) -> list[str]:
    """Return the lines that label_image prints about a loaded model."""
    lines = [
        f"tensors size: {len(graph.tensors)}",
        f"nodes size: {len(graph.nodes)}",
        f"inputs: {len(graph.inputs)}",
        f"input(0) name: {graph.inputs[0].name}",
    ]
    for tensor in graph.tensors:
        scale, zero_point = 0.0, 0
        quantization = tensor.quantization
        # TFLite's single scale and zero point stay 0 for per-channel quantisation.
        if quantization is not None and len(quantization.scale) == 1:
            scale, zero_point = quantization.scale[0], quantization.zero_point[0]
        lines.append(
            f"{tensor.index}: {tensor.name}, {_size_bytes(tensor)}, "
            f"{TYPE_NUMBERS.get(tensor.dtype, 0)}, {scale:g}, {zero_point}"
        )
    return lines


def interpreter_state(graph: Graph, reasons: Mapping[int, str | None] | None = None) -> str:
    """Return a table of tensors and nodes, modelled on TFLite's PrintInterpreterState.

    `reasons`: why OpenCL did not take each node (None: it did); None: no OpenCL.
    """
    op_numbers = builtin_op_numbers()
    lines = [
        f"Interpreter has {graph.subgraphs} subgraphs.",
        "",
        f"-----------Subgraph-0 has {len(graph.tensors)} tensors and {len(graph.nodes)} nodes"
        "------------",
        f"{len(graph.inputs)} Inputs: {_indices(graph.inputs)}",
        f"{len(graph.outputs)} Outputs: {_indices(graph.outputs)}",
        "",
        f"Tensor  ID {'Name':<40} {'Type':<10} {'Bytes':>10}  Shape",
    ]
    lines += [
        f"Tensor {tensor.index:3d} {_shorten(tensor.name, 40):<40} {tensor.dtype:<10} "
        f"{_size_bytes(tensor):>10}  {list(tensor.shape)}"
        for tensor in graph.tensors
    ]
    lines.append("")
    for node in graph.nodes:
        code = op_numbers.get(node.op, _CUSTOM)
        kind = "Custom Name" if node.is_custom else f"Builtin Code {code:3d}"
        verdict = ""
        if reasons is not None:
            reason = reasons.get(node.index)
            verdict = f" (not delegated: {reason})" if reason else " (delegated by OpenCL)"
        lines.append(f"Node {node.index:3d} Operator {kind} {node.op}{verdict}")
        lines.append(f"  {len(node.inputs)} Input Tensors: {_indices(node.inputs)}")
        lines.append(f"  {len(node.outputs)} Output Tensors: {_indices(node.outputs)}")
    return "\n".join(lines)


def profile_lines(records: Iterable[LaunchTime], most: int) -> list[str]:
    """Return label_image's profiling rows: the last `most`, like its ring buffer."""
    op_numbers = builtin_op_numbers()
    rows = [
        f"{record.microseconds / 1000:10.3f}, Subgraph {0:3d}, Node {record.node:3d}, "
        f"OpCode {op_numbers.get(record.op, _CUSTOM):3d}, {record.op}"
        for record in records
    ]
    return rows[-most:]


def _size_bytes(tensor: Tensor) -> int:
    if tensor.data is not None:
        return tensor.data.nbytes
    try:
        item_bytes = np.dtype(tensor.dtype).itemsize
    except TypeError:  # strings and other types that numpy lacks
        return 0
    return math.prod(max(size, 0) for size in tensor.shape) * item_bytes


def _indices(tensors: Iterable[Tensor | None]) -> str:
    return "[" + ",".join("-1" if t is None else str(t.index) for t in tensors) + "]"


def _shorten(name: str, width: int) -> str:
    return name if len(name) <= width else "..." + name[3 - width :]
