# SPDX-License-Identifier: Apache-2.0
"""Turns a .tflite file into a Graph, checking every offset, index and size on the way.

Knows no op: options are decoded by their field tables. What an op's values mean is not judged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import ModelError
from delegate.graph.ir import Graph, Node, Tensor
from delegate.tflite import schema
from delegate.tflite.bodies import Bodies
from delegate.tflite.quantization import BlockDetails, read_quantization, with_blocks
from delegate.tflite.signatures import signature_of
from delegate.tflite.sparsity import dense as sparsity_values
from delegate.tflite.table import File, Source, Table, named, open_model, options_of

_MAX_DIMENSIONS = 32  # numpy 1's limit


def read_model(source: Source, signature: str | None = None) -> Graph:
    """Return the subgraph of a .tflite model that this signature runs; None: the first.

    A path is mapped into memory, and constants are read-only views of it: replace a model file
    that may be in use, do not rewrite it.

    Node.options holds every field of the op's options class under its schema name, with the
    schema's default where the file leaves one out. Numbers of an enum become its name ("SAME",
    "RELU6"), tensor types their numpy name ("int32"); a number without a name stays a number.
    Vectors become tuples, vectors of bytes `bytes`. An operator without its options table gets
    zeros and "NONE", as in TFLite (`core/api/flatbuffer_conversions.cc`), where a missing table
    leaves a zeroed structure. A custom op has one option, "custom_options", of type `bytes`.
    An unknown builtin code 999 is the op "BUILTIN_999", an unknown tensor type 99 is "type_99".

    Tensor.data of a type that numpy has not (int4, bfloat16, string, ...) is the constant's bytes
    as they are: one dimension of uint8. Without zero points in the file they are zeros.

    Raises:
        ModelError: the file is damaged, foreign or above 2 GB.
        SignatureError: it has no such signature. OSError: the path cannot be read.
    """
    with named(source):
        content = open_model(source)
        known = signature_of(content, signature)
        graph = read_subgraph(content, known.subgraph)
        return replace(graph, input_names=known.inputs, output_names=known.outputs)


def read_subgraph(content: memoryview, number: int, bodies: Bodies | None = None) -> Graph:
    """Return one subgraph of a model whose bytes these are, as `read_model` returns the first.

    Raises:
        ModelError: the model is damaged or foreign, or has no such subgraph.
    """
    file = File(content)
    model = file.root()
    version = model.scalar("version")
    if version != schema.VERSION:
        raise ModelError(f"the model has schema version {version}; only {schema.VERSION} is known")
    count = model.count("subgraphs")
    if count == 0:
        raise ModelError("the model has no subgraphs")
    if number >= count:
        raise ModelError(f"the model has no subgraph {number}")
    subgraph = next(islice(model.tables("subgraphs", "subgraph"), number, None))

    buffers = tuple(buffer_span(file, buffer) for buffer in model.tables("buffers", "buffer"))
    tensors = _read_tensors(file, subgraph, buffers)
    codes = tuple(read_code(code) for code in model.tables("operator_codes", "operator code"))
    nodes = tuple(
        _read_node(file, operator, index, codes, tensors)
        for index, operator in enumerate(subgraph.tables("operators", "operator"))
    )
    _check_producers(nodes)
    inner = bodies or Bodies(count)
    nodes = inner.attach(number, nodes, lambda called: read_subgraph(content, called, inner))
    return Graph(
        tensors=tensors,
        nodes=nodes,
        inputs=_known(_lookup(subgraph, "inputs", "input", tensors), subgraph, "input"),
        outputs=_known(_lookup(subgraph, "outputs", "output", tensors), subgraph, "output"),
        description=model.string("description"),
        subgraph=number,
        subgraphs=count,
    )


def read_subgraphs(content: memoryview) -> tuple[Graph, ...]:
    """Return all subgraphs of a model.

    Raises:
        ModelError: the model is damaged or foreign.
    """
    first = read_subgraph(content, 0)
    return (first, *(read_subgraph(content, number) for number in range(1, first.subgraphs)))


def buffer_span(file: File, buffer: Table) -> tuple[int, int]:
    """Return where a buffer's bytes start and how many there are."""
    start, size_bytes = buffer.span("data")
    if size_bytes == 0:
        return _external_span(file, buffer, "offset", "size")
    return start, size_bytes


def _external_span(file: File, table: Table, offset: str, size: str) -> tuple[int, int]:
    # Data outside the flatbuffer counts from the file's start. Writers put 1 for "not yet known".
    start, size_bytes = table.scalar(offset), table.scalar(size)
    if start <= 1 or size_bytes == 0:
        return 0, 0
    file.check(start, size_bytes, table.where)
    return start, size_bytes


def _read_tensors(
    file: File, subgraph: Table, buffers: tuple[tuple[int, int], ...]
) -> tuple[Tensor, ...]:
    in_blocks: dict[int, BlockDetails] = {}
    tensors = tuple(
        _read_tensor(file, table, index, buffers, in_blocks)
        for index, table in enumerate(subgraph.tables("tensors", "tensor"))
    )
    return with_blocks(tensors, in_blocks, subgraph.numbers("inputs"))


def _read_tensor(
    file: File,
    table: Table,
    index: int,
    buffers: tuple[tuple[int, int], ...],
    in_blocks: dict[int, BlockDetails],
) -> Tensor:
    """Return a tensor; what is to be known of its blocks is put into `in_blocks`."""
    name = table.string("name")
    table.where = f"tensor {index} {_short(name)}"
    number = table.scalar("type")
    dtype = schema.enum_names("TensorType").get(number, f"type_{number}")
    shape = table.numbers("shape")
    if len(shape) > _MAX_DIMENSIONS:
        raise ModelError(f"{table.where} has {len(shape)} dimensions, more than {_MAX_DIMENSIONS}")
    if any(size < 0 for size in shape):
        raise ModelError(f"{table.where} has a negative size in its shape {_by(shape)}")

    buffer = table.scalar("buffer")
    if buffer and buffer >= len(buffers):
        raise ModelError(f"{table.where} uses buffer {buffer}, but the model has {len(buffers)}")
    # Buffer 0 is empty by definition: its tensors are computed.
    start, size_bytes = buffers[buffer] if buffer else (0, 0)
    sparsity = table.table("sparsity")
    data = None
    if size_bytes and sparsity is None:
        data = _view(file, start, size_bytes, shape, dtype, table.where)
    elif size_bytes and sparsity is not None:
        data = _dense(file, start, size_bytes, shape, dtype, sparsity)
    quantization = read_quantization(table)
    if isinstance(quantization, BlockDetails):
        in_blocks[index], quantization = quantization, None
    return Tensor(
        index=index,
        name=name,
        shape=shape,
        dtype=dtype,
        quantization=quantization,
        data=data,
        is_variable=table.scalar("is_variable"),
        is_sparse=sparsity is not None,
        shape_signature=table.numbers("shape_signature"),
    )


def _view(
    file: File, start: int, size_bytes: int, shape: tuple[int, ...], dtype: str, where: str
) -> NDArray[Any]:
    content = file.view[start : start + size_bytes]
    number = schema.numpy_dtype(dtype)
    if number is None:
        return np.frombuffer(content, np.uint8)
    needed_bytes = math.prod(shape) * number.itemsize
    if needed_bytes != size_bytes:
        raise ModelError(
            f"{where} has {size_bytes} bytes for shape {_by(shape)} of {dtype} "
            f"({needed_bytes} needed)"
        )
    return np.frombuffer(content, number).reshape(shape)


def _dense(
    file: File, start: int, size_bytes: int, shape: tuple[int, ...], dtype: str, sparsity: Table
) -> NDArray[Any] | None:
    number = schema.numpy_dtype(dtype)
    if number is None or size_bytes % number.itemsize:
        return None
    if not file.spend_dense(math.prod(shape) * number.itemsize):
        return None
    stored = np.frombuffer(file.view[start : start + size_bytes], number)
    try:
        return sparsity_values(stored, shape, sparsity)
    except ValueError:
        return None  # malformed: TFLite reports it


def read_code(table: Table) -> tuple[str, int, bool]:
    """Return an operator code's op, its version, and whether it is a custom op."""
    # Two fields may hold the code. The older one has 8 bits; the larger value is the code.
    code = max(table.scalar("builtin_code"), table.scalar("deprecated_builtin_code"))
    version = table.scalar("version")
    op = schema.builtin_name(code)
    if op != "CUSTOM":
        return op, version, False
    name = table.string("custom_code")
    if not name:
        raise ModelError(f"{table.where} is a custom op without a name")
    return name, version, True


def _read_node(
    file: File,
    operator: Table,
    index: int,
    codes: tuple[tuple[str, int, bool], ...],
    tensors: tuple[Tensor, ...],
) -> Node:
    code = operator.scalar("opcode_index")
    if code >= len(codes):
        raise ModelError(
            f"{operator.where} uses operator code {code}, but the model has {len(codes)}"
        )
    op, version, is_custom = codes[code]
    operator.where = f"operator {index} ({_short(op, quoted=is_custom)})"
    inputs = _lookup(operator, "inputs", "input", tensors)
    outputs = _known(_lookup(operator, "outputs", "output", tensors), operator, "output")
    options = _custom_options(file, operator) if is_custom else options_of(operator, op)
    between = _lookup(operator, "intermediates", "intermediate", tensors)
    return Node(index, op, version, inputs, outputs, options, is_custom, intermediates=between)


def _lookup(
    table: Table, field: str, label: str, tensors: tuple[Tensor, ...]
) -> tuple[Tensor | None, ...]:
    """Return the tensors an index vector names; -1 is an input left out."""
    found: list[Tensor | None] = []
    for position, index in enumerate(table.numbers(field)):
        if not -1 <= index < len(tensors):
            raise ModelError(
                f"{table.where}: {label} {position} is tensor {index}, "
                f"but the model has {len(tensors)}"
            )
        found.append(None if index == -1 else tensors[index])
    return tuple(found)


def _known(found: tuple[Tensor | None, ...], table: Table, label: str) -> tuple[Tensor, ...]:
    tensors = tuple(tensor for tensor in found if tensor is not None)
    if len(tensors) != len(found):
        raise ModelError(f"{table.where}: {label} {found.index(None)} is left out (tensor -1)")
    return tensors


def _custom_options(file: File, operator: Table) -> Mapping[str, Any]:
    content = operator.copy("custom_options")
    if not content:
        start, size_bytes = _external_span(
            file, operator, "large_custom_options_offset", "large_custom_options_size"
        )
        file.spend(size_bytes, operator.where)
        content = bytes(file.view[start : start + size_bytes])
    return {"custom_options": content}


def _check_producers(nodes: tuple[Node, ...]) -> None:
    producers: dict[int, tuple[int, int]] = {}
    for node in nodes:
        for position, tensor in enumerate(node.outputs):
            where = (
                f"operator {node.index} ({_short(node.op, quoted=node.is_custom)}): "
                f"output {position} is tensor {tensor.index} {_short(tensor.name)}"
            )
            if tensor.data is not None:
                raise ModelError(f"{where}, which is a constant")
            producer = producers.setdefault(tensor.index, (node.index, position))
            if producer != (node.index, position):
                raise ModelError(f"{where}, which operator {producer[0]} already produces")


def _short(name: str, quoted: bool = True) -> str:
    short = name if len(name) <= 60 else f"{name[:57]}..."
    return repr(short) if quoted else short


def _by(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "()"
