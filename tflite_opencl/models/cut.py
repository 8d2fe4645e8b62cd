# SPDX-License-Identifier: Apache-2.0
"""Extracts nodes of a model as a model, and writes the files that reproduce their results."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from delegate.inspect import Graph, Node, Tensor, write_model
from tflite_opencl.console.errors import make_folder, write
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.models.build import Array
from tflite_opencl.models.build import graph as graph_of

Arrays = Sequence[Array]
_STATES = ("resource", "variant")  # types whose values TFLite's API cannot set


class Uncut(Exception):
    """These nodes cannot be extracted; the text is the reason."""


def cut(known: Graph, first: int, last: int) -> Graph:
    """Return the nodes from `first` to `last` as a graph; values read from other nodes are inputs.

    Its outputs are read by other nodes, or by none. Names, weights, quantisation and node order are
    preserved. Values that depend on constants only are constants. `Tensor.origin` is the tensor's
    index in `known`, a graph as returned by `infer`.

    Raises: Uncut: the nodes run other subgraphs, or read or write tensors without values.
    """
    nodes = known.nodes[first : last + 1]
    if why := runs_others(nodes):
        raise Uncut(why)
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
    return dataclasses.replace(found, description=f"{words} of a model of {len(known.nodes)}")


def runs_others(nodes: Sequence[Node]) -> str:
    """Return which node runs subgraphs other than its graph's own; "": none does."""
    for node in nodes:
        has_own = node.body is not None or node.calls is not None
        is_whole = has_own and node.op != "CALL_ONCE"  # its variables are read by other nodes
        if not is_whole and any("subgraph" in option for option in node.options):
            return f"node {node.index} {node.op} runs other subgraphs"
    return ""


def why_uncut(graph: Graph) -> str:
    """Return why some node of a graph cannot be extracted; "": all can."""
    users: dict[Tensor, int] = {}
    for node in graph.nodes:
        if why := runs_others([node]):
            return why
        for tensor in (*node.inputs, *node.outputs):
            if tensor is not None and tensor.dtype in _STATES:
                return f"node {node.index} {node.op} has a {tensor.dtype}, which is no value"
            is_state = tensor is not None and tensor.is_variable
            if tensor and is_state and users.setdefault(tensor, node.index) != node.index:
                return f"several nodes share the variable {tensor.name}"
    return ""


def _require_values(graph: Graph) -> None:
    if not graph.outputs:
        raise Uncut("it has no output")
    for what, tensors in (("reads", graph.inputs), ("writes", graph.outputs)):
        for tensor in tensors:
            if tensor.dtype in _STATES:
                raise Uncut(f"it {what} {tensor.name}, which is a {tensor.dtype} and no value")


def part_name(first: int, last: int) -> str:
    """Return the file name of a part: its number, in the form of Mesa's tests."""
    return f"{first:03}" if first == last else f"{first:03}-{last:03}"


def write_part(
    folder: Path,
    name: str,
    graph: Graph,
    inputs: Arrays = (),
    outputs: Arrays = (),
    script: str = "",
) -> list[str]:
    """Write NAME.tflite, NAME_input_0.npy, NAME_output_0.npy etc., and NAME.py; return the names.

    Raises: CommandError: a file cannot be written.
    """
    files: dict[str, bytes | str] = {f"{name}.tflite": write_model(graph)}
    for kind, arrays in (("input", inputs), ("output", outputs)):
        for number, values in enumerate(arrays):
            content = io.BytesIO()
            np.save(content, values)
            files[f"{name}_{kind}_{number}.npy"] = content.getvalue()
    if script:
        files[f"{name}.py"] = script
    make_folder(folder)
    for file, written in files.items():
        write(str(folder / file), written)
    return [*files]


def script_of(name: str, inputs: int, runtime: Runtime, made: str, why: str) -> str:
    """Return a script that prints the outputs of a part on the reference kernels and a delegate.

    `name`, `inputs`: of `write_part`, and their number. `made`: the delegate's expression, "" for
    TFLite's default one. `why`: one line that describes the fault.
    """
    module = {"ai-edge-litert": "ai_edge_litert", "tflite-runtime": "tflite_runtime"}[runtime.name]
    resolver = "experimental_op_resolver_type=tflite.OpResolverType.BUILTIN_REF"
    other = made and f"experimental_delegates=[{made}], {resolver}"
    return (
        f"# {' '.join(why.split())}\n"
        f"import numpy, os, {module}.interpreter as tflite\n"
        "os.chdir(os.path.dirname(os.path.abspath(__file__)))\n"
        f"for words in (dict({resolver}), dict({other})):\n"
        f"    made = tflite.Interpreter({f'{name}.tflite'!r}, **words); made.allocate_tensors()\n"
        f"    [made.set_tensor(d['index'], numpy.load(f'{name}_input_{{i}}.npy')) "
        f"for i, d in enumerate(made.get_input_details()[:{inputs}])]; made.invoke()\n"
        "    print([made.get_tensor(d['index']).tolist() for d in made.get_output_details()])\n"
    )


def compiled_script_of(name: str, inputs: int, folder: str, options: str, why: str) -> str:
    """Return the same script for LiteRT's CompiledModel with the accelerator in a folder.

    `options`: for TFLITE_OPENCL_OPTIONS.
    """
    return (
        f"# {' '.join(why.split())}\n"
        "import numpy, os, ai_edge_litert.interpreter as tflite\n"
        "from ai_edge_litert import compiled_model, environment, hardware_accelerator\n"
        "os.chdir(os.path.dirname(os.path.abspath(__file__)))\n"
        f"os.environ['TFLITE_OPENCL_OPTIONS'] = {options!r}\n"
        "both = hardware_accelerator.HardwareAccelerator\n"
        f"named = {f'{name}.tflite'!r}\n"
        "right = tflite.Interpreter(named, experimental_op_resolver_type="
        "tflite.OpResolverType.BUILTIN_REF); right.allocate_tensors()\n"
        "made = compiled_model.CompiledModel.from_file(named, hardware_accel=both.GPU | both.CPU, "
        f"environment=environment.Environment.create(runtime_path={folder!r}))\n"
        "inputs, outputs = made.create_input_buffers(0), made.create_output_buffers(0)\n"
        f"for i, d in enumerate(right.get_input_details()[:{inputs}]):\n"
        f"    values = numpy.load(f'{name}_input_{{i}}.npy')\n"
        "    right.set_tensor(d['index'], values)\n"
        "    inputs[i].write(numpy.frombuffer(values.tobytes(), numpy.int8))\n"
        "right.invoke(); made.run_by_index(0, inputs, outputs)\n"
        "wanted = [right.get_tensor(d['index']) for d in right.get_output_details()]\n"
        "print([values.tolist() for values in wanted])\n"
        "print([buffer.read(values.nbytes, numpy.int8).view(values.dtype).reshape(values.shape)"
        ".tolist() for buffer, values in zip(outputs, wanted)])\n"
    )
