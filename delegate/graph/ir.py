# SPDX-License-Identifier: Apache-2.0
"""The graph IR shared by all layers: frozen records.

It does not depend on flatbuffers, TFLite's C structures or OpenCL.
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
    axis: int = 0  # the dimension of per-channel scales


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """Blockwise scales of a matrix, whose rows are cut into blocks: real = scale * value."""

    scales: NDArray[Any]  # (rows, blocks) of float16; in a file they are another constant
    size: int  # values per block


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A value of the graph; tensors are compared by identity."""

    index: int  # position in the file's tensor table, which is TFLite's tensor index
    name: str  # "" if the file has none
    shape: tuple[int, ...]  # sizes in elements; () is a scalar
    dtype: str  # numpy's name ("uint8", "float32", "bool"), or "string", "resource", ... for others
    quantization: Quantization | None = None  # None: not quantised, or blockwise
    # A constant's values in `shape`, or raw bytes if numpy lacks the type; None: computed.
    data: NDArray[Any] | None = None
    is_variable: bool = False  # its value outlives a run
    # The constant is stored compressed; `data` is dense, or None if it cannot be decoded.
    is_sparse: bool = False
    is_folded: bool = False  # computed by a node, but `data` is known: graph/fold.py
    shape_signature: tuple[int, ...] = ()  # as converted, -1 = dynamic; () if the file has none
    # Minimum and maximum of each element of a computed index, if proven: graph/ranges.py
    ranges: tuple[NDArray[Any], NDArray[Any]] | None = None
    # Its original position in the file's table, if a pass has moved it; None: `index`; -1: made
    # by a pass.
    origin: int | None = None
    blocks: Blocks | None = None  # if a row has several scales
    # The persistent tensor of which this is a version: one without producer is the value before a
    # run, the last one the value after it. See graph/persistent.py. "": not persistent.
    state_name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Calls:
    """The subgraphs that a WHILE or an IF calls, and what is known of the calls statically."""

    graphs: tuple[Graph, ...]  # in the order of the options: condition and body, or then and else
    # Why the node is not inlined; "": the node's `body` replaces it. Set by infer for each node
    # that reads no tensor of unknown shape.
    obstacle: str = UNSIZED
    is_sized: bool = False  # TFLite knows the output shapes before a run


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One operator; `inputs` may contain None for omitted optional inputs."""

    index: int  # position in the subgraph's operator list, which is TFLite's node index
    # TFLite's builtin name ("CONV_2D"), or the custom op's own name. A fused node
    # ("conv_2d_add"), or label_image's for frames ("picture"), has a lower-case name: no file has
    # such an op, and TFLite never sees it.
    op: str
    version: int  # of the op, as required by the file
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]
    # By the schema's names ("stride_w"); enum values by name ("SAME").
    options: Mapping[str, Any] = field(default_factory=dict)
    is_custom: bool = False  # `op` is not one of TFLite's builtin names
    # Of a fused node: its internal tensors, which nothing else reads.
    inner: tuple[Tensor, ...] = ()
    # A private subgraph: a STABLEHLO_COMPOSITE's decomposition, CALL_ONCE's initialisation.
    # Of a WHILE or an IF: the nodes that replace it, on its own inputs and outputs.
    body: Graph | None = None
    calls: Calls | None = None  # of a WHILE or an IF
    # Tensors without readers, whose quantisation determines internal rounding: of LSTMs.
    intermediates: tuple[Tensor | None, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Resources:
    """The resource variables of a file: see graph/resources.py.

    `initial`: initial values, by name. `why_not`: why they stay on the CPU; "": they do not.
    """

    initial: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    why_not: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A subgraph of a model, its nodes in execution order."""

    # Position = Tensor.index; after the file's, those of graph/resources.py, below 0.
    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]  # position = Node.index
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    description: str = ""  # from the file
    subgraph: int = 0  # its index in the file
    subgraphs: int = 1  # in the file: of other signatures, or bodies of control flow
    is_called: bool = False  # by an operator of another graph, possibly repeatedly
    # Of the persistent tensors that `initial` does not name, the first value is zero.
    resources: Resources = Resources()
    # Names in the requested signature: name -> tensor index in the file.
    input_names: Mapping[str, int] = field(default_factory=dict)
    output_names: Mapping[str, int] = field(default_factory=dict)

    @property
    def changeable(self) -> frozenset[Tensor]:
        """Constants that are also inputs: a caller may set them, so their values are unknown."""
        return frozenset(tensor for tensor in self.inputs if tensor.data is not None)
