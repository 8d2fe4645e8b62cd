# SPDX-License-Identifier: Apache-2.0
"""Runs one node on the installed TFLite's reference kernels.

They arbitrate between a device's kernels, and run nodes that do not fit the device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.format.writer import write_model
from delegate.graph.edit import of_one_node
from delegate.graph.float16 import widened
from delegate.graph.ir import Graph, Node, Tensor
from delegate.graph.packed import BITS
from delegate.graph.persistent import written_variables
from delegate.host.tflite.library import PACKAGES, rules
from delegate.host.tflite.runtime_probes import open_interpreter, package_outputs
from delegate.launch import element_type, is_empty
from delegate.target import Rules


def reference_outputs(
    wanted: Rules, node: Node, inputs: Sequence[NDArray[Any]]
) -> list[NDArray[Any]] | None:
    """Return the outputs of the reference kernels of a runtime with these rules.

    The built-in kernel substitutes for one that is missing or wrong. None: no runtime is
    installed, or it cannot run the node, such as a fused one.
    `inputs`: of each computed input tensor, in the node's order.
    A node on float16 tensors is run in float32, and the results are rounded to fp16.
    """
    if (on_floats := widened(node)) is not None:
        return _in_halves(reference_outputs(wanted, on_floats, [*map(_wide, inputs)]), node)
    package = next((name for name in PACKAGES if rules(name) == wanted), None)
    computed = [t for t in (*node.inputs, *node.outputs) if t is not None and t.data is None]
    # The Interpreter represents packed types as int8.
    if package is None or node.op.islower() or any(t.dtype in BITS for t in computed):
        return None
    try:
        model = write_model(_graph_of(node))
    except ValueError:
        return None
    given = [values.tobytes() for values in inputs]
    found = None if is_wrong_in_reference(node) else package_outputs(package, model, given)
    if found is None:  # the reference kernel may be missing
        found = package_outputs(package, model, given, is_built_in=True)
    if found is None:
        return None
    outputs = zip(node.outputs, found, strict=True)
    return [np.frombuffer(content, element_type(tensor.dtype)) for tensor, content in outputs]


def _wide(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.float32) if values.dtype == np.float16 else values


def _in_halves(found: list[NDArray[Any]] | None, node: Node) -> list[NDArray[Any]] | None:
    if found is None:
        return None
    return [_of_type(values, t) for values, t in zip(found, node.outputs, strict=True)]


def _of_type(values: NDArray[Any], tensor: Tensor) -> NDArray[Any]:
    """Return a tensor's values in its type: those that were computed in float32 are rounded."""
    with np.errstate(over="ignore"):
        return values.astype(element_type(tensor.dtype), copy=False)


class NodeOnTFLite:
    """A node of a partition that runs on TFLite's kernel.

    That is the reference kernel, or the built-in one if that is missing or wrong. A node on float16
    tensors is run in float32, and the results are rounded to fp16.
    """

    def __init__(self, wanted: Rules, node: Node) -> None:
        """`wanted`: the rules of the TFLite that owns the node.

        Raises:
            Unsupported: that TFLite is not a Python package, or rejects the node at these shapes.
        """
        where = f"node {node.index} ({node.op})"
        package = next((n for n, title in PACKAGES.items() if title == wanted.runtime), "")
        self._made = _opened(where, package, widened(node) or node)
        self._inputs = [*dict.fromkeys(t for t in node.inputs if t is not None and t.data is None)]
        self._outputs = node.outputs
        details = self._made.get_output_details()
        for tensor, detail in zip(node.outputs, details, strict=True):
            shape = tuple(int(size) for size in detail["shape"])
            if shape != tensor.shape:
                raise Unsupported(f"{where}: TFLite's output is {shape}, not {tensor.shape}")

    def run(self, values: Mapping[Tensor, NDArray[np.uint8]]) -> None:
        """Run once, from the bytes of each input to those of each output."""
        made = self._made
        for tensor, detail in zip(self._inputs, made.get_input_details(), strict=True):
            if not is_empty(tensor):
                given = values[tensor].view(element_type(tensor.dtype)).reshape(tensor.shape)
                made.set_tensor(detail["index"], given.astype(detail["dtype"], copy=False))
        made.invoke()
        for tensor, detail in zip(self._outputs, made.get_output_details(), strict=True):
            if not is_empty(tensor) and tensor in values:
                result = np.ascontiguousarray(_of_type(made.get_tensor(detail["index"]), tensor))
                np.copyto(values[tensor], result.reshape(-1).view(np.uint8))


def _opened(where: str, package: str, node: Node) -> Any:
    """Return an interpreter of a node; raises Unsupported."""
    computed = [t for t in (*node.inputs, *node.outputs) if t is not None and t.data is None]
    if any(t.dtype in BITS for t in computed):
        raise Unsupported(f"{where}: packed values")
    why: Exception = Unsupported("the Python package of this TFLite is not installed")
    for is_built_in in (True,) if is_wrong_in_reference(node) else (False, True):
        try:
            if package:
                return open_interpreter(package, write_model(_graph_of(node)), is_built_in)
        except (ImportError, RuntimeError, ValueError) as error:
            why = error
    raise Unsupported(f"{where}: TFLite refuses it at these shapes, too: {why}")


def is_wrong_in_reference(node: Node) -> bool:
    """Whether TFLite's reference kernel is wrong for a node, and the built-in one correct."""
    # NOTE: its signed sums are wrong: [-76, -1] for [180, -108].
    if node.op == "SUM" and node.outputs[0].dtype in ("int8", "int16"):
        return True
    # NOTE: its FULLY_CONNECTED ignores the scales of blocks.
    return any(tensor is not None and tensor.blocks is not None for tensor in node.inputs)


def _graph_of(node: Node) -> Graph:
    """Return a node's graph; new values of variable tensors are read from these after the run."""
    made = written_variables(node)
    graph = of_one_node(replace(node, outputs=node.outputs[: len(node.outputs) - len(made)]))
    own = graph.nodes[0].inputs
    after = (own[node.inputs.index(tensor)] for tensor in made)
    return replace(graph, outputs=(*graph.outputs, *(t for t in after if t is not None)))
