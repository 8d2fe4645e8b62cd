# SPDX-License-Identifier: Apache-2.0
"""Values that outlive runs become ordinary tensors that are `kept`: Graph -> Graph.

Each version of such a value is a tensor with its name. The one that no node makes is what a run
finds; of those that nodes make the last is what it leaves. Ops know nothing of it.

An op that writes a variable tensor which it reads (SVDF, LSTM, RNN) says in WRITES which inputs
those are. Its node then has an output more for each of them, behind its own and in the order of
WRITES: the variable's next version, of the same shape, type and quantisation. So `lower(node)` sees
an ordinary input and an ordinary output, which never share bytes, and writes the whole of the
output. A node whose inputs at these places are no variable tensors has no such outputs: TFLite
refuses it, and so does `lower`. Rules of shapes see the node's own outputs alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from delegate.graph.edit import with_tensors
from delegate.graph.ir import Graph, Node, Tensor

# A tensor by its name, or by its index in the file.
TensorRef = str | int
# Op -> the inputs that it writes in place, by their places; left out where the node lacks them.
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
FIRST = -3  # the number of new tensors and lower ones: no file's, and no temporary's


def persistent_tensors(graph: Graph) -> list[Tensor]:
    """Return a tensor of each kept value, the one that a run finds if it reads the value."""
    named: dict[str, Tensor] = {}
    for tensor in graph.tensors:
        if tensor.state_name:
            named.setdefault(tensor.state_name, tensor)
    return [*named.values()]


def next_version(tensors: list[Tensor], name: str, like: Tensor) -> Tensor:
    """Return a new version of the value of this name, which joins a graph's tensors."""
    fields = like.shape, like.dtype, like.quantization
    made = Tensor(
        FIRST - len(tensors), name, *fields, is_variable=like.is_variable, state_name=name
    )
    tensors.append(made)
    return made


def written_variables(node: Node) -> tuple[Tensor, ...]:
    """Return the kept variable tensors that a node writes: its last outputs, as many, are new."""
    return tuple(tensor for tensor in _written_inputs(node) if tensor.state_name)


def _written_inputs(node: Node) -> list[Tensor]:
    places = () if node.is_custom else WRITES.get(node.op, ())
    if node.op == "LSTM" and node.options.get("kernel_type") == "BASIC":
        places = _OF_BASIC_LSTM
    found = [node.inputs[place] for place in places if place < len(node.inputs)]
    return [tensor for tensor in found if tensor is not None and tensor.is_variable]


def with_variables(graph: Graph) -> Graph:
    """Return the graph whose variable tensors are kept.

    Left as they are: those that are an input or output of the graph, an output of a node or a
    constant, too, those that a node writes twice, and those of a type that NumPy lacks.

    The value is named as `name_of` says. In a graph that is not its file's first the graph's number
    is in the name, too, as each graph has its own variables.
    """
    made = {tensor for node in graph.nodes for tensor in node.outputs}
    ends = {*graph.inputs, *graph.outputs}
    found = [t for t in graph.tensors if t.is_variable and t.data is None and not t.state_name]
    found = [t for t in found if t not in made and t not in ends and t.dtype in _TYPES]
    read = {tensor for node in graph.nodes for tensor in node.inputs}
    found = [tensor for tensor in found if tensor in read]
    twice = {t for node in graph.nodes for t, n in Counter(_written_inputs(node)).items() if n > 1}
    taken = {*graph.initial, *(tensor.state_name for tensor in graph.tensors)}
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
    """Return the graph whose outputs of these are what the next run finds in these inputs.

    `carry`: output -> input. Neither is an input or output of the graph any more. The value is
    named by `name_of` the input.

    Raises:
        ValueError: there is no such output or input, it stands twice, or the two differ.
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
    """Return the name of an input of a graph; its index where it has none, or others have it."""
    return _name(source, graph.inputs)


def _name(tensor: Tensor, among: Iterable[Tensor]) -> str:
    is_alone = [each.name for each in among].count(tensor.name) == 1
    return tensor.name if tensor.name and is_alone else str(tensor.index)


def _find_tensor(tensors: Iterable[Tensor], which: TensorRef, what: str) -> Tensor:
    # A tensor may stand twice among a graph's outputs.
    found = [*dict.fromkeys(t for t in tensors if which in (t.name, t.index))]
    if len(found) != 1:
        number = "no" if not found else f"{len(found)} tensors are"
        raise ValueError(f"carry: {number} {what} {which!r}")
    return found[0]


def _words(tensor: Tensor) -> str:
    return f"tensor {tensor.index} ({tensor.name})"


def _type(tensor: Tensor) -> str:
    """Say what makes the bytes of a tensor mean what they mean."""
    text = f"{tensor.dtype} of shape {tensor.shape}"
    if tensor.quantization is None:
        return text
    scale, zero_point = tensor.quantization.scale, tensor.quantization.zero_point
    return f"{text} with scale {scale} and zero point {zero_point}"
