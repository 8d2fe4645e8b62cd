# SPDX-License-Identifier: Apache-2.0
"""What --verbose and --profiling show of a model and of its nodes' times, as lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np

from delegate.inspect import Graph, LaunchTime, Tensor, builtin_op_numbers
from tflite_opencl.common.runtime import TYPE_NUMBERS

_CUSTOM = 32  # BuiltinOperator_CUSTOM


def model_lines(graph: Graph) -> list[str]:
    """Return the lines label_image prints of a loaded model."""
    lines = [
        f"tensors size: {len(graph.tensors)}",
        f"nodes size: {len(graph.nodes)}",
        f"inputs: {len(graph.inputs)}",
        f"input(0) name: {graph.inputs[0].name}",
    ]
    for tensor in graph.tensors:
        scale, zero_point = 0.0, 0
        quantization = tensor.quantization
        # TFLite's single scale and zero point stay 0 where a tensor has one for each channel.
        if quantization is not None and len(quantization.scale) == 1:
            scale, zero_point = quantization.scale[0], quantization.zero_point[0]
        lines.append(
            f"{tensor.index}: {tensor.name}, {_size_bytes(tensor)}, "
            f"{TYPE_NUMBERS.get(tensor.dtype, 0)}, {scale:g}, {zero_point}"
        )
    return lines


def interpreter_state(graph: Graph, reasons: Mapping[int, str | None] | None = None) -> str:
    """Return a table of tensors and nodes, in the spirit of TFLite's PrintInterpreterState.

    `reasons` says of each node why OpenCL did not take it (None: it did); None: no OpenCL.
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
    """Return label_image's profiling rows, the last `most` as its ring buffer keeps them."""
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
    except TypeError:  # strings and other types that numpy has not
        return 0
    return math.prod(max(size, 0) for size in tensor.shape) * item_bytes


def _indices(tensors: Iterable[Tensor | None]) -> str:
    return "[" + ",".join("-1" if t is None else str(t.index) for t in tensors) + "]"


def _shorten(name: str, width: int) -> str:
    return name if len(name) <= width else "..." + name[3 - width :]
