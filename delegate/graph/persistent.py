# SPDX-License-Identifier: Apache-2.0
"""Values that outlive runs as persistent tensors: Graph -> Graph in which they are ordinary.

Each version of such a value is a tensor with its `state_name`. The one without a producer is the
value before a run; the last of the others is the value after it. Ops are unaware of it.

WRITES lists the inputs that an op updates in place (variable tensors of SVDF, LSTM, RNN). Its node
gets an additional output for each of them, after its own and in the order of WRITES: the variable's
next version, of the same shape, type and quantisation. So `lower(node)` sees an ordinary input and
an ordinary output, which never share memory, and writes the whole output. A node whose inputs there
are not variable tensors has no such outputs: TFLite rejects it, and so does `lower`. Shape rules
see only the node's own outputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from delegate.graph.edit import with_tensors
from delegate.graph.ir import Graph, Node, Tensor

# A tensor by its name, or by its index in the file.
TensorRef = str | int
# Op -> positions of the inputs that it updates in place, if present.
# Source: tflite/kernels/*.cc, whatever they pass to GetVariableInput
WRITES: Mapping[str, tuple[int, ...]] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": (35, 36, 37, 38),
    "BIDIRECTIONAL_SEQUENCE_RNN": (4, 8),
    "LSTM": (18, 19),
    "RNN": (4,),
    "SVDF": (4,),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (18, 19),
    "UNIDIRECTIONAL_SEQUENCE_RNN": (4,),
}
_OF_BASIC_LSTM = 1, 4  # LSTM has two kernels
_TYPES = frozenset(
    ("bool", "float32", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
)
FIRST = -3  # the index of new tensors and below: not in files, nor of temporaries


def persistent_tensors(graph: Graph) -> list[Tensor]:
    """Return a tensor of each persistent value, the version before a run if that is read."""
    named: dict[str, Tensor] = {}
    for tensor in graph.tensors:
        if tensor.state_name:
            named.setdefault(tensor.state_name, tensor)
    return [*named.values()]


def next_version(tensors: list[Tensor], name: str, like: Tensor) -> Tensor:
    """Create a new version of the value of this name, and append it to a graph's tensors."""
    fields = like.shape, like.dtype, like.quantization
    made = Tensor(
        FIRST - len(tensors), name, *fields, is_variable=like.is_variable, state_name=name
    )
    tensors.append(made)
    return made


def written_variables(node: Node) -> tuple[Tensor, ...]:
    """Return the persistent variable tensors that a node updates; its last outputs are new."""
    return tuple(tensor for tensor in _written_inputs(node) if tensor.state_name)


def _written_inputs(node: Node) -> list[Tensor]:
    places = () if node.is_custom else WRITES.get(node.op, ())
    if node.op == "LSTM" and node.options.get("kernel_type") == "BASIC":
        places = _OF_BASIC_LSTM
    found = [node.inputs[place] for place in places if place < len(node.inputs)]
    return [tensor for tensor in found if tensor is not None and tensor.is_variable]


def with_variables(graph: Graph) -> Graph:
    """Return the graph with its variable tensors made persistent.

    Excluded are those that are also an input or output of the graph, an output of a node or a
    constant, those that a node updates twice, and those of a type that NumPy lacks.

    The value is named by `name_of`. Outside the file's first graph the name also contains the
    graph's index, as each graph has its own variables.
    """
    made = {tensor for node in graph.nodes for tensor in node.outputs}
    ends = {*graph.inputs, *graph.outputs}
    found = [t for t in graph.tensors if t.is_variable and t.data is None and not t.state_name]
    found = [t for t in found if t not in made and t not in ends and t.dtype in _TYPES]
    read = {tensor for node in graph.nodes for tensor in node.inputs}
    found = [tensor for tensor in found if tensor in read]
    twice = {t for node in graph.nodes for t, n in Counter(_written_inputs(node)).items() if n > 1}
    taken = {*graph.resources.initial, *(tensor.state_name for tensor in graph.tensors)}
    where = f" of graph {graph.subgraph}" if graph.subgraph else ""
    first: dict[Tensor, Tensor] = {}
    for tensor in found:
        name = f"{_name(tensor, found)}{where}"
        if name not in taken and tensor not in twice:
            first[tensor] = replace(tensor, state_name=name)
            taken.add(name)
    if not first:
        return graph
    tensors = [first.get(tensor, tensor) for tensor in graph.tensors]
    nodes = []
    now = dict(first)
    for node in graph.nodes:
        inputs = tuple(None if t is None else now.get(t, t) for t in node.inputs)
        later = {
            t: next_version(tensors, now[t].state_name, t)
            for t in _written_inputs(node)
            if t in now
        }
        now |= later
        nodes.append(replace(node, inputs=inputs, outputs=(*node.outputs, *later.values())))
    return replace(graph, tensors=tuple(tensors), nodes=tuple(nodes))


def with_carry(graph: Graph, carry: Mapping[TensorRef, TensorRef]) -> Graph:
    """Return the graph in which these outputs become the next run's inputs.

    `carry`: output -> input. Neither is an input or output of the graph any more. The value is
    named by `name_of` of the input.

    Raises:
        ValueError: no such output or input, a duplicate, or the two do not match.
    """
    made = {tensor for node in graph.nodes for tensor in node.outputs}
    changed: dict[Tensor, Tensor] = {}
    for of_output, of_input in carry.items():
        result = _find_tensor(graph.outputs, of_output, "output")
        source = _find_tensor(graph.inputs, of_input, "input")
        if twice := [tensor for tensor in (result, source) if tensor in changed]:
            raise ValueError(f"carry has {_words(twice[0])} twice")
        if result not in made:
            raise ValueError(f"carry: no node computes {_words(result)}")
        if source.data is not None:
            raise ValueError(f"carry: {_words(source)} is a constant, too")
        if _type(result) != _type(source):
            raise ValueError(
                f"carry: {_words(result)} is {_type(result)}, and {_words(source)} is "
                f"{_type(source)}"
            )
        name = name_of(source, graph)
        changed |= {tensor: replace(tensor, state_name=name) for tensor in (source, result)}
    names = [tensor.state_name for tensor in changed.values()]
    taken = {tensor.state_name for tensor in persistent_tensors(graph)}
    if doubled := [name for name in names if names.count(name) > 2 or name in taken]:
        raise ValueError(f"carry: two values are named {doubled[0]!r}")
    return replace(
        with_tensors(graph, changed),
        inputs=tuple(tensor for tensor in graph.inputs if tensor not in changed),
        outputs=tuple(tensor for tensor in graph.outputs if tensor not in changed),
    )


def name_of(source: Tensor, graph: Graph) -> str:
    """Return the name of a graph's input; its index if it has none, or it is not unique."""
    return _name(source, graph.inputs)


def _name(tensor: Tensor, among: Iterable[Tensor]) -> str:
    is_alone = [each.name for each in among].count(tensor.name) == 1
    return tensor.name if tensor.name and is_alone else str(tensor.index)


def _find_tensor(tensors: Iterable[Tensor], which: TensorRef, what: str) -> Tensor:
    # A tensor may occur twice among a graph's outputs.
    found = [*dict.fromkeys(t for t in tensors if which in (t.name, t.index))]
    if len(found) != 1:
        number = "no" if not found else f"{len(found)} tensors are"
        raise ValueError(f"carry: {number} {what} {which!r}")
    return found[0]


def _words(tensor: Tensor) -> str:
    return f"tensor {tensor.index} ({tensor.name})"


def _type(tensor: Tensor) -> str:
    """Return everything that determines the meaning of a tensor's bytes, for messages."""
    text = f"{tensor.dtype} of shape {tensor.shape}"
    if tensor.quantization is None:
        return text
    scale, zero_point = tensor.quantization.scale, tensor.quantization.zero_point
    return f"{text} with scale {scale} and zero point {zero_point}"
