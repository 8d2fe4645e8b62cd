# SPDX-License-Identifier: Apache-2.0
"""A part of a model as a model of its own, and the files that show what it computes."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from delegate.inspect import Graph, infer, write_model
from tflite_opencl.common.build import Array
from tflite_opencl.common.build import graph as graph_of
from tflite_opencl.common.errors import write

Arrays = Sequence[Array]
_STATES = ("resource", "variant")  # types whose values no caller of TFLite can give


class Uncut(Exception):
    """These nodes make no model of their own; the text is the reason."""


def cut(graph: Graph, first: int, last: int) -> Graph:
    """Return the nodes from `first` to `last` as a graph: what they read from others is its input.

    Its outputs are what other nodes, or nobody, read. Names, weights, quantisation and the nodes'
    order stay. What follows from constants alone is a constant there. `Tensor.origin` is the index
    that a tensor has in `graph`.

    Raises: Uncut: the nodes run other subgraphs, or what they read or write is no value.
    """
    known = infer(graph)
    nodes = known.nodes[first : last + 1]
    for node in nodes:
        if any("subgraph" in option for option in node.options):
            raise Uncut(f"node {node.index} {node.op} runs other subgraphs")
    made = dict.fromkeys(tensor for node in nodes for tensor in node.outputs)
    others = [node for node in known.nodes if not first <= node.index <= last]
    read = {tensor for node in others for tensor in node.inputs}.union(known.outputs)
    inside = {tensor for node in nodes for tensor in node.inputs}
    plain = {
        tensor: dataclasses.replace(
            tensor,
            data=None if tensor in made else tensor.data,
            is_folded=False,
            origin=tensor.index,
        )
        for node in nodes
        for tensor in (*node.inputs, *node.outputs)
        if tensor is not None
    }
    found = graph_of(
        [
            dataclasses.replace(
                node,
                inputs=tuple(None if each is None else plain[each] for each in node.inputs),
                outputs=tuple(plain[each] for each in node.outputs),
            )
            for node in nodes
        ],
        outputs=[plain[each] for each in made if each in read or each not in inside],
    )
    _require_values(found)
    words = f"node {first}" if first == last else f"nodes {first} to {last}"
    return dataclasses.replace(found, description=f"{words} of a model of {len(graph.nodes)}")


def _require_values(graph: Graph) -> None:
    if not graph.outputs:
        raise Uncut("it has no output")
    for what, tensors in (("reads", graph.inputs), ("writes", graph.outputs)):
        for tensor in tensors:
            if tensor.dtype in _STATES:
                raise Uncut(f"it {what} {tensor.name}, which is a {tensor.dtype} and no value")


def write_part(
    folder: Path, name: str, graph: Graph, inputs: Arrays = (), outputs: Arrays = ()
) -> list[str]:
    """Write NAME.tflite, NAME_input_0.npy ... and NAME_output_0.npy ...; return their names.

    Raises: CommandError: a file cannot be written.
    """
    files = {f"{name}.tflite": write_model(graph)}
    for kind, arrays in (("input", inputs), ("output", outputs)):
        for number, values in enumerate(arrays):
            content = io.BytesIO()
            np.save(content, values)
            files[f"{name}_{kind}_{number}.npy"] = content.getvalue()
    for file, written in files.items():
        write(str(folder / file), written)
    return [*files]
