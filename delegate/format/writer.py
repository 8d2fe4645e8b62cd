# SPDX-License-Identifier: Apache-2.0
"""Writes a Graph as a .tflite file: the inverse of read_model.

It is op-agnostic, and does not check that TFLite can run the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from delegate.format import schema, sparsity
from delegate.format.bodies import subgraphs_of
from delegate.format.tree import Tree, packed
from delegate.graph.ir import Graph, Node, Tensor


def write_model(graph: Graph) -> bytes:
    """Return the graph as a .tflite file; equal graphs give equal bytes.

    Omitted options get the schema's defaults. A sparse constant is written with its last dimension
    sparse, whatever its original format. Blockwise scales without a tensor get one at the end.
    Anything a Graph does not hold is lost: metadata, signatures, other subgraphs.

    Raises:
        ValueError: an option, a type or a constant does not fit the schema; a tensor is not in the
            graph; a sparse one has no values; the graph has several subgraphs.
    """
    graphs = with_bodies([graph])
    if graph.subgraphs not in (1, len(graphs)):
        raise ValueError(f"a graph of a model with {graph.subgraphs} subgraphs cannot be written")
    return packed(model_tree(*graphs))


def write_signatures(graphs: Mapping[str, Graph]) -> bytes:
    """Return a .tflite file of these graphs, each with a signature of its name.

    A signature names inputs and outputs as in `input_names` and `output_names` of its graph, or
    else by their tensors' names. A body shared by several nodes, as for CALL_ONCE, is written once.

    Raises:
        ValueError: as `write_model`.
    """
    tree = model_tree(*with_bodies([*graphs.values()]))
    tree["signature_defs"] = [
        {
            "inputs": _names(graph.input_names, graph.inputs),
            "outputs": _names(graph.output_names, graph.outputs),
            "signature_key": name,
            "subgraph_index": number,
        }
        for number, (name, graph) in enumerate(graphs.items())
    ]
    return packed(tree)


def _names(given: Mapping[str, int], tensors: Sequence[Tensor]) -> list[Tree]:
    names = given or {tensor.name: tensor.index for tensor in tensors}
    return [{"name": name, "tensor_index": index} for name, index in names.items()]


def with_bodies(graphs: Sequence[Graph]) -> list[Graph]:
    """Return the graphs and their nodes' subgraphs; options of nodes refer to their indices."""
    found = [*graphs]
    numbers: dict[int, int] = {}  # by id(subgraph)
    for place, graph in enumerate(found):  # grows during iteration
        nodes = []
        for node in graph.nodes:
            for option, called in subgraphs_of(node).items():
                if id(called) not in numbers:
                    numbers[id(called)] = len(found)
                    found.append(called)
                node = replace(node, options={**node.options, option: numbers[id(called)]})
            nodes.append(node)
        found[place] = replace(graph, nodes=tuple(nodes))
    return found


def model_tree(*graphs: Graph) -> Tree:
    """Return the tables of a model with these subgraphs, the main one first.

    Raises:
        ValueError: as `write_model`.
    """
    graphs = tuple(map(_with_scales, graphs))
    nodes = [node for graph in graphs for node in graph.nodes]
    codes = list(dict.fromkeys((node.op, node.is_custom, node.version) for node in nodes))
    constants = [t for graph in graphs for t in graph.tensors if t.data is not None]
    # An array shared by several tensors, such as weights in several graphs, is written once.
    contents = {_content_of(tensor): tensor for tensor in constants}
    # Buffer 0 is empty, and used by all computed tensors.
    numbers = {content: number for number, content in enumerate(contents, start=1)}
    buffers = {id(tensor): numbers[_content_of(tensor)] for tensor in constants}
    return {
        "version": schema.VERSION,
        "operator_codes": [_code(*code) for code in codes],
        "subgraphs": [_subgraph(graph, codes, buffers) for graph in graphs],
        "description": graphs[0].description,
        "buffers": [{}, *({"data": _content(tensor)} for tensor in contents.values())],
    }


def _table(kind: str, **values: Any) -> Tree:
    """Return a table without fields that are None or equal to the schema's default."""
    fields = schema.fields(kind)
    return {
        name: value
        for name, value in values.items()
        if value is not None
        and not (fields[name].kind == "scalar" and value == fields[name].default)
    }


def _subgraph(
    graph: Graph, codes: Sequence[tuple[str, bool, int]], buffers: Mapping[int, int]
) -> Tree:
    """`codes`: ops by operator code; `buffers`: id(tensor) -> buffer index."""
    places = {id(tensor.data): tensor.index for tensor in graph.tensors}
    return {
        "tensors": [
            _tensor(tensor, buffers.get(id(tensor), 0), places) for tensor in graph.tensors
        ],
        "inputs": [_index(graph, tensor, "the graph's inputs") for tensor in graph.inputs],
        "outputs": [_index(graph, tensor, "the graph's outputs") for tensor in graph.outputs],
        "operators": [
            _operator(graph, node, codes.index((node.op, node.is_custom, node.version)))
            for node in graph.nodes
        ],
    }


def _index(graph: Graph, tensor: Tensor | None, where: str) -> int:
    if tensor is None:
        return -1
    own = graph.tensors[tensor.index] if 0 <= tensor.index < len(graph.tensors) else None
    if own is not tensor:
        raise ValueError(f"{where}: tensor {tensor.index} {tensor.name!r} is not in graph.tensors")
    return tensor.index


def _with_scales(graph: Graph) -> Graph:
    """Return the graph with a tensor for each array of blockwise scales that has none."""
    own = {id(tensor.data) for tensor in graph.tensors}
    tensors = [*graph.tensors]
    for tensor in graph.tensors:
        if tensor.blocks is not None and id(scales := tensor.blocks.scales) not in own:
            own.add(id(scales))
            name, dtype = f"{tensor.name}/scales", scales.dtype.name
            tensors.append(Tensor(len(tensors), name, scales.shape, dtype, data=scales))
    return replace(graph, tensors=tuple(tensors))


def _quantization(tensor: Tensor, places: Mapping[int, int]) -> Tree | None:
    """Return the table; `places`: id(values) -> index of the tensor with these values."""
    if tensor.blocks is not None:
        scales = places[id(tensor.blocks.scales)]
        kind = "BlockwiseQuantization"
        number = schema.enum_values("QuantizationDetails")[kind]
        details = _table(kind, scales=scales, zero_points=-1, block_size=tensor.blocks.size)
        return _table("QuantizationParameters", details_type=number, details=details)
    quantization = tensor.quantization
    if quantization is None:
        return None
    return _table(
        "QuantizationParameters",
        scale=quantization.scale,
        zero_point=quantization.zero_point,
        quantized_dimension=quantization.axis,
    )


def _tensor(tensor: Tensor, buffer: int, places: Mapping[int, int]) -> Tree:
    where = f"tensor {tensor.index} {tensor.name!r}"
    return _table(
        "Tensor",
        shape=tensor.shape,
        type=_number(schema.enum_values("TensorType"), tensor.dtype, "type_", where),
        buffer=buffer,
        name=tensor.name,
        quantization=_quantization(tensor, places),
        is_variable=tensor.is_variable,
        shape_signature=tensor.shape_signature or None,
        sparsity=_sparsity(tensor, where) if tensor.is_sparse else None,
    )


def _sparsity(tensor: Tensor, where: str) -> Tree:
    if tensor.data is None or not tensor.shape:
        raise ValueError(f"{where} is sparse, but its values are not in the graph")
    _, segments, indices = sparsity.compressed(tensor.data)
    kind = schema.enum_values("SparseIndexVector")["Int32Vector"]
    last = {
        "format": schema.enum_values("DimensionType")["SPARSE_CSR"],
        "array_segments_type": kind,
        "array_segments": {"values": segments},
        "array_indices_type": kind,
        "array_indices": {"values": indices},
    }
    levels = [_table("DimensionMetadata", dense_size=size) for size in tensor.shape[:-1]]
    return {"traversal_order": range(len(tensor.shape)), "dim_metadata": [*levels, last]}


def _content_of(tensor: Tensor) -> tuple[int, str, bool]:
    """Return a key that tensors share if their buffers have the same content."""
    return id(tensor.data), tensor.dtype, tensor.is_sparse


def _content(tensor: Tensor) -> bytes:
    """Return the buffer content of a constant."""
    data = tensor.data
    assert data is not None
    dtype = schema.numpy_dtype(tensor.dtype)
    if dtype is None:
        fits = data.ndim == 1 and data.dtype == np.uint8
    else:
        fits = data.shape == tensor.shape and data.dtype == dtype
    if not fits:
        raise ValueError(
            f"tensor {tensor.index} {tensor.name!r} is {tensor.dtype} of shape {tensor.shape}, "
            f"but its data is {data.dtype} of shape {data.shape}"
        )
    if tensor.is_sparse:
        data = sparsity.compressed(data)[0]
    return data.astype(dtype or np.uint8, copy=False).tobytes()


def _code(op: str, is_custom: bool, version: int) -> Tree:
    builtin = "CUSTOM" if is_custom else op
    number = _number(schema.enum_values("BuiltinOperator"), builtin, "BUILTIN_", "an operator")
    return _table(
        "OperatorCode",
        deprecated_builtin_code=min(number, schema.LAST_SHORT_CODE),
        custom_code=op.encode() if is_custom else None,
        version=version,
        builtin_code=number,
    )


def _operator(graph: Graph, node: Node, code: int) -> Tree:
    where = f"operator {node.index} ({node.op})"
    values: Tree = {
        "opcode_index": code,
        "inputs": [_index(graph, tensor, where) for tensor in node.inputs],
        "outputs": [_index(graph, tensor, where) for tensor in node.outputs],
    }
    if node.intermediates:
        values["intermediates"] = [_index(graph, tensor, where) for tensor in node.intermediates]
    options_class = None if node.is_custom else schema.options_class(node.op)
    if node.is_custom:
        _check_names(node.options, ["custom_options"], where)
        values["custom_options"] = node.options.get("custom_options")
    elif options_class is None:
        _check_names(node.options, [], where)
    else:
        kind, number, union = options_class
        known = schema.fields(kind)
        _check_names(node.options, known, where)
        options = {
            name: _numbers(value, known[name].enum, f"{where}: {name}")
            for name, value in node.options.items()
        }
        values[f"{union}_type"] = number
        values[union] = _table(kind, **options)
    return _table("Operator", **values)


def _check_names(
    options: Mapping[str, Any], known: Sequence[str] | Mapping[str, Any], where: str
) -> None:
    for name in options:
        if name not in known:
            raise ValueError(
                f"{where} has no option {name!r}; it has: {', '.join(known) or 'none'}"
            )


def _numbers(value: Any, enum: str, where: str) -> Any:
    """Return an option's value with enum members replaced by their numbers."""
    if not enum:
        return value
    values = schema.enum_values(enum)
    if isinstance(value, str):
        return _number(values, value, "", where)
    if isinstance(value, Sequence):
        return [_numbers(item, enum, where) for item in value]
    return value


def _number(values: Mapping[str, int], name: str, unknown_prefix: str, where: str) -> int:
    """Return an enum member's number; an unnamed member has its number in its name."""
    if name in values:
        return values[name]
    number = name.removeprefix(unknown_prefix)
    if unknown_prefix and name != number and number.lstrip("-").isdecimal():
        return int(number)
    raise ValueError(f"{where}: {name!r} is none of {', '.join(values)}")
