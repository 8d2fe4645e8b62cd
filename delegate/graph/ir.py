# SPDX-License-Identifier: Apache-2.0
"""The neutral graph every layer above and below speaks: frozen records.

Nothing here knows flatbuffers, TFLite's C structures or OpenCL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

UNSIZED = "a tensor's shape is known only at run time"  # why a node stays on the CPU


@dataclass(frozen=True, slots=True)
class Quantization:
    """Affine quantisation: real = scale * (value - zero_point)."""

    scale: tuple[float, ...]  # one per tensor, or one per slice along `axis`; exact float32 values
    zero_point: tuple[int, ...]  # as many as scales
    axis: int = 0  # the dimension per-channel scales belong to


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Scales of a matrix whose rows are cut into blocks of neighbours: real = scale * value."""

    scales: NDArray[Any]  # (rows, blocks) of float16; in a file another constant has them
    size: int  # values a block


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A value of the graph; two tensors are the same one only if they are the same object."""

    index: int  # position in the file's tensor table, which is TFLite's tensor index
    name: str  # "" where the file gives none
    shape: tuple[int, ...]  # sizes in elements; () is a scalar
    dtype: str  # numpy's name ("uint8", "float32", "bool"), or "string", "resource", ... for others
    quantization: Quantization | None = None  # None: the values are plain numbers, or have blocks
    # A constant's values in `shape`, or its raw bytes where numpy lacks the type; None: computed.
    data: NDArray[Any] | None = None
    is_variable: bool = False  # state that outlives a run
    # The constant is stored compressed; `data` has all its values, or None if they are not clear.
    is_sparse: bool = False
    is_folded: bool = False  # a node computes it, but `data` is known all the same: graph/fold.py
    shape_signature: tuple[int, ...] = ()  # as converted, -1 = unknown; () where the file has none
    # Least and greatest value of each element of a computed index, if proven: graph/ranges.py
    ranges: tuple[NDArray[Any], NDArray[Any]] | None = None
    # Its position in the file's table before passes moved it; None: `index` is it; -1: a pass
    # made the tensor.
    origin: int | None = None
    blocks: Blocks | None = None  # where a row has several scales
    # The name of a value that outlives runs, of which this is a version: the one that a run finds,
    # or one that a node makes; a run leaves the last. See graph/persistent.py. "": none.
    state_name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """The subgraphs that a WHILE or an IF calls, and what is known of the calls before a run."""

    graphs: tuple[Graph, ...]  # in the order of the options: condition and body, or then and else
    # Why the node is not inlined; "": the node's `body` is what it comes to. Infer looks at each
    # node but those that read a tensor of unknown shape.
    obstacle: str = UNSIZED
    is_sized: bool = False  # TFLite knows the shapes of the outputs before a run


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator; `inputs` may hold None where an optional input is left out."""

    index: int  # position in the subgraph's operator list, which is TFLite's node index
    # TFLite's builtin name ("CONV_2D"), or the custom op's own name. A node that a pass made of two
    # ("conv_2d_add"), or label_image for frames ("picture"), has a name in small letters: no file
    # has such an op, and TFLite never sees it.
    op: str
    version: int  # of the op, as the file asks for it
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    # By the schema's names ("stride_w"); enum values by name ("SAME").
    options: Mapping[str, Any] = field(default_factory=dict)
    is_custom: bool = False  # `op` is not one of TFLite's builtin names
    # Of a node that a pass made of several: the tensors between those, which nobody else reads.
    inner: tuple[Tensor, ...] = ()
    # The subgraph that it alone runs: a STABLEHLO_COMPOSITE's decomposition, CALL_ONCE's beginning.
    # Of a WHILE or an IF: the nodes that take its place, on its own inputs and outputs.
    body: Graph | None = None
    calls: Calls | None = None  # of a WHILE or an IF
    # Tensors that nobody reads, whose quantisation tells how the op rounds within: of LSTMs.
    intermediates: tuple[Tensor | None, ...] = ()
    # The node with floats, of one that has halves in their places: delegate/plan/fp16/fp16.py.
    full: Node | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A subgraph of a model, its nodes in execution order."""

    # Position = Tensor.index; behind the file's those of graph/resources.py, below 0.
    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]  # position = Node.index
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    description: str = ""  # the file's own words about itself
    subgraph: int = 0  # its number in the file
    subgraphs: int = 1  # in the file: of other signatures, or bodies of control flow
    is_called: bool = False  # by an operator of another graph, once a round
    # What kept values begin with, by name; those that are not here begin with zero.
    initial: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    # What the signature that was asked for calls them: name -> the tensor's index in the file.
    input_names: Mapping[str, int] = field(default_factory=dict)
    output_names: Mapping[str, int] = field(default_factory=dict)
    # why its resource variables stay on the CPU
    why_not_persistent: str = ""

    @property
    def changeable(self) -> frozenset[Tensor]:
        """The constants that are inputs, too: a caller may set them, so no value is known."""
        return frozenset(tensor for tensor in self.inputs if tensor.data is not None)
