# SPDX-License-Identifier: Apache-2.0
"""Reads a .tflite file into a Graph, validating every offset, index and size.

It is op-agnostic: options are decoded by their field tables, but not interpreted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any

from delegate.errors import ModelError
from delegate.format import schema
from delegate.format.bodies import Bodies
from delegate.format.constants import buffer_span, dense_of, external_span, shape_text, view_of
from delegate.format.quantization import BlockDetails, read_quantization, with_blocks
from delegate.format.signatures import signature_of, signatures_of
from delegate.format.source import Source, named, open_model
from delegate.format.table import File, Table, options_of
from delegate.graph.ir import Graph, Node, Tensor
from delegate.guard.children import progress

_MAX_DIMENSIONS = 32  # numpy 1's limit


def read_model(source: Source, signature: str | None = None) -> Graph:
    """Return the subgraph of a .tflite model for a signature; None: the first.

    A path is mapped into memory, and constants are read-only views of it: replace a model file
    that may be in use, do not overwrite it.

    Node.options contains every field of the op's options class under its schema name, with the
    schema's default if the file omits it. Enum numbers become names ("SAME", "RELU6"), tensor
    types numpy's names ("int32"); numbers without a name are unchanged. Vectors become tuples,
    byte vectors `bytes`. An operator without its options table gets zeros and "NONE", as in
    TFLite (`core/api/flatbuffer_conversions.cc`), where a missing table
    leaves a zeroed structure. A custom op has one option, "custom_options", of type `bytes`.
    An unknown builtin code 999 is the op "BUILTIN_999", an unknown tensor type 99 is "type_99".

    Tensor.data of a type that numpy lacks (int4, bfloat16, string, ...) is the constant's raw
    bytes: one dimension of uint8. Missing zero points are zeros.

    Raises:
        ModelError: the file is damaged, of another format or above 2 GB.
        SignatureError: it has no such signature. OSError: the path cannot be read.
    """
    with named(source):
        return Subgraphs(open_model(source)).of_signature(signature)


def read_signatures(source: Source) -> tuple[Subgraphs, dict[str, Graph]]:
    """Return the subgraphs of a .tflite model, and those with signatures, by name.

    Raises:
        ModelError, OSError: as `read_model`.
    """
    with named(source):
        subgraphs = Subgraphs(open_model(source))
        names = signatures_of(subgraphs.content)
        return subgraphs, {name: subgraphs.of_signature(name) for name in names}


class Subgraphs:
    """The subgraphs of a model in memory, each read once, as by `read_model`."""

    def __init__(self, content: memoryview) -> None:
        """Reads nothing yet."""
        self.content = content
        self._alone: dict[int, Graph] = {}  # without bodies of nodes
        self._whole: dict[int, Graph] = {}

    def __getitem__(self, number: int) -> Graph:
        """Return one subgraph.

        Raises:
            ModelError: the model is damaged or of another format, or has no such subgraph.
        """
        if number not in self._whole:
            self._whole[number] = self._with_bodies(number, Bodies(self._head.count))
        return self._whole[number]

    def of_signature(self, name: str | None) -> Graph:
        """Return the subgraph of a signature, with its names; None: the first.

        Raises:
            ModelError: as `__getitem__`. SignatureError: no such signature.
        """
        if name is None:
            return self[0]
        own = signature_of(self.content, name)
        return replace(self[own.subgraph], input_names=own.inputs, output_names=own.outputs)

    def __len__(self) -> int:
        """Return their number; raises ModelError: the model is damaged or of another format."""
        return self._head.count

    def __iter__(self) -> Iterator[Graph]:
        """Yield each; raises as `__getitem__`."""
        return (self[number] for number in range(len(self)))

    @cached_property
    def _head(self) -> _Head:
        file = File(self.content)
        model = file.root()
        if (version := model.scalar("version")) != schema.VERSION:
            raise ModelError(f"it has schema version {version}; only {schema.VERSION} is known")
        if (count := model.count("subgraphs")) == 0:
            raise ModelError("the model has no subgraphs")
        return _Head(
            count,
            tuple(buffer_span(file, buffer) for buffer in model.tables("buffers", "buffer")),
            tuple(read_code(code) for code in model.tables("operator_codes", "operator code")),
            model.string("description"),
        )

    @progress.no_collections()
    def _with_bodies(self, number: int, bodies: Bodies) -> Graph:
        if number not in self._alone:
            self._alone[number] = _read_subgraph(File(self.content), number, self._head)
        graph = self._alone[number]
        nodes = bodies.attach(number, graph.nodes, lambda called: self._with_bodies(called, bodies))
        return replace(graph, nodes=nodes)


@dataclass(frozen=True, slots=True)
class _Head:
    """Common data of a model's subgraphs."""

    count: int  # of subgraphs
    buffers: tuple[tuple[int, int], ...]  # offset and size of each
    codes: tuple[tuple[str, int, bool], ...]  # as `read_code`
    description: str


def _read_subgraph(file: File, number: int, head: _Head) -> Graph:
    """Return a subgraph without bodies of nodes."""
    if number >= head.count:
        raise ModelError(f"the model has no subgraph {number}")
    subgraph = next(islice(file.root().tables("subgraphs", "subgraph"), number, None))
    tensors = _read_tensors(file, subgraph, head.buffers)
    nodes = tuple(
        _read_node(file, operator, index, head.codes, tensors)
        for index, operator in enumerate(subgraph.tables("operators", "operator"))
    )
    _check_producers(nodes)
    return Graph(
        tensors=tensors,
        nodes=nodes,
        inputs=_known(_lookup(subgraph, "inputs", "input", tensors), subgraph, "input"),
        outputs=_known(_lookup(subgraph, "outputs", "output", tensors), subgraph, "output"),
        description=head.description,
        subgraph=number,
        subgraphs=head.count,
    )


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
    """Return a tensor; blockwise quantisation is added to `in_blocks`."""
    name = table.string("name")
    table.where = f"tensor {index} {_short(name)}"
    number = table.scalar("type")
    dtype = schema.enum_names("TensorType").get(number, f"type_{number}")
    shape = table.numbers("shape")
    if len(shape) > _MAX_DIMENSIONS:
        raise ModelError(f"{table.where} has {len(shape)} dimensions, more than {_MAX_DIMENSIONS}")
    if any(size < 0 for size in shape):
        raise ModelError(f"{table.where} has a negative size in its shape {shape_text(shape)}")

    buffer = table.scalar("buffer")
    if buffer and buffer >= len(buffers):
        raise ModelError(f"{table.where} uses buffer {buffer}, but the model has {len(buffers)}")
    # Buffer 0 is empty by definition: its tensors are computed.
    start, size_bytes = buffers[buffer] if buffer else (0, 0)
    sparsity = table.table("sparsity")
    data = None
    if size_bytes and sparsity is None:
        data = view_of(file, start, size_bytes, shape, dtype, table.where)
    elif size_bytes and sparsity is not None:
        data = dense_of(file, start, size_bytes, shape, dtype, sparsity)
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


def read_code(table: Table) -> tuple[str, int, bool]:
    """Return an operator code's op, its version, and whether it is a custom op."""
    # Two fields may contain the code. The older one has 8 bits; the larger value is the code.
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
    """Return the tensors of an index vector; -1 is an omitted input."""
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
        start, size_bytes = external_span(
            file, operator, "large_custom_options_offset", "large_custom_options_size"
        )
        file.spend(size_bytes, operator.where)
        content = bytes(file.view[start : start + size_bytes])
    return {"custom_options": content}


def _check_producers(nodes: tuple[Node, ...]) -> None:
    producers: dict[int, tuple[int, int]] = {}
    for node, position, tensor in ((n, p, t) for n in nodes for p, t in enumerate(n.outputs)):
        maker = producers.setdefault(tensor.index, (node.index, position))
        if tensor.data is None and maker == (node.index, position):
            continue
        is_made = f"operator {maker[0]} already produces"
        raise ModelError(
            f"operator {node.index} ({_short(node.op, quoted=node.is_custom)}): "
            f"output {position} is tensor {tensor.index} {_short(tensor.name)}, "
            f"which {'is a constant' if tensor.data is not None else is_made}"
        )


def _short(name: str, quoted: bool = True) -> str:
    short = name if len(name) <= 60 else f"{name[:57]}..."
    return repr(short) if quoted else short
