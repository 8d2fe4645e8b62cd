# SPDX-License-Identifier: Apache-2.0
"""Registry of graph passes, and bundles of them for targets; imports passes lazily."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from delegate.graph.partition import products
from delegate.inspect import Graph
from tflite_opencl.rewrites.changes import Note, Notes


@dataclass(frozen=True, slots=True)
class GraphPass:
    """A pass: tflite_opencl/rewrites/passes/<name>.py."""

    name: str
    is_exact: bool  # the reference kernels' results are bit-identical before and after
    does: str  # one-line description
    wanted_by: str  # targets, or purpose


@dataclass(frozen=True, slots=True)
class Bundle:
    """Passes that adapt a model to a target, in execution order."""

    name: str
    passes: tuple[str, ...]
    why: str  # rationale in one sentence


@dataclass(frozen=True, slots=True)
class GraphSize:
    """The size of a graph."""

    nodes: int
    multiply_adds: int  # of nodes with constant weights, per run
    weight_bytes: int  # of all constants


@dataclass(frozen=True, slots=True, eq=False)
class PassStep:
    """The result of one pass on a graph."""

    name: str
    graph: Graph  # afterwards; the same object if nothing changed
    before: GraphSize
    after: GraphSize
    notes: tuple[Note, ...]


# Name -> its purpose, and targets. In execution order if all are requested: constants
# are folded first, for the benefit of the others; per_channel_to_per_tensor precedes
# passes that mix channels.
_TEXTS = {
    "fold_constants": (
        "nodes that follow from constants and fixed shapes become constants",
        "every target: SHAPE and DEQUANTIZE nodes are work that a CPU is left with",
    ),
    "nchw_to_nhwc": (
        "TRANSPOSEs are pushed together and cancelled",
        "models from PyTorch and ONNX: copies of whole tensors less",
    ),
    "fuse_requantize": (
        "a QUANTIZE between quantised tensors goes into the node before it",
        "targets whose convolutions requantise: one copy of the tensor less",
    ),
    "dilate": (
        "SPACE_TO_BATCH_ND, a convolution and BATCH_TO_SPACE_ND become a dilated convolution",
        "targets that know dilation, but no pictures in batches",
    ),
    "fuse_pad": (
        "PAD and a VALID convolution become a SAME convolution",
        "targets without PAD: one copy of the tensor less",
    ),
    "fuse_activations": (
        "RELU, RELU6 and RELU_N1_TO_1 join the node before them; clamps without effect go",
        "Mesa's Teflon: it knows no RELU, and takes a fused one only if the range implies it",
    ),
    "per_channel_to_per_tensor": (
        "a convolution with a weight scale for each channel gets one scale",
        "Mesa's Teflon (etnaviv, rocket, Ethos-U), and every uint8 model",
    ),
    "signed_to_unsigned": (
        "int8 becomes uint8, with a QUANTIZE where a node or the graph's end stays int8",
        "targets that know uint8 alone, as etnaviv's NPU",
    ),
    "unsigned_to_signed": (
        "uint8 becomes int8, with a QUANTIZE where a node or the graph's end stays uint8",
        "targets that know int8 alone, as CMSIS-NN",
    ),
    "depthwise_to_conv": (
        "DEPTHWISE_CONV_2D becomes CONV_2D, the zero point in all other channels",
        "etnaviv's NPU and others without depthwise convolutions",
    ),
    "unstride_convolutions": (
        "a strided convolution becomes SPACE_TO_DEPTH and a convolution of stride 1",
        "etnaviv's NPU and others without strides",
    ),
    "remove_dead": (
        "nodes and constants that no output depends on go",
        "every target: a smaller file",
    ),
}
_LOSSY = ("per_channel_to_per_tensor",)
_PASSES = {name: GraphPass(name, name not in _LOSSY, *texts) for name, texts in _TEXTS.items()}

# Free for any target, and reduce the number of nodes.
_ALWAYS = "fold_constants nchw_to_nhwc fuse_requantize fuse_pad fuse_activations"
# Name -> its passes, and rationale.
_BUNDLES = {
    "teflon": (
        f"{_ALWAYS} per_channel_to_per_tensor remove_dead",
        "Mesa's Teflon delegate takes a convolution only with one scale a tensor and with an "
        "activation that the output's range implies (tfl_device.c)",
    ),
    "etnaviv": (
        f"{_ALWAYS} per_channel_to_per_tensor signed_to_unsigned unstride_convolutions"
        " depthwise_to_conv remove_dead",
        "VeriSilicon's NPU computes dense convolutions of stride 1, and Mesa's driver rewrites "
        "all others while it loads a model (etnaviv_ml_nn.c)",
    ),
    "uint8": (
        f"{_ALWAYS} per_channel_to_per_tensor signed_to_unsigned remove_dead",
        "TensorFlow 1 quantised to uint8 with one scale a tensor, and drivers of that time, "
        "etnaviv's first, know no other type",
    ),
    "stride-1": (
        "unstride_convolutions",
        "an NPU whose convolutions have no strides, which Linux Plumbers 2024 asked for",
    ),
    "no-depthwise": (
        "depthwise_to_conv",
        "an NPU without depthwise convolutions, which Linux Plumbers 2024 asked for",
    ),
}


def graph_passes() -> Mapping[str, GraphPass]:
    """Return all passes by name, in execution order if all are requested."""
    return _PASSES


def pass_bundles() -> Mapping[str, Bundle]:
    """Return the bundles of passes by name."""
    return {
        name: Bundle(name, tuple(names.split()), why) for name, (names, why) in _BUNDLES.items()
    }


def rewrite(graph: Graph, passes: Iterable[str]) -> Graph:
    """Return the graph after these passes, in this order; the same object if nothing changed.

    Raises:
        ValueError: unknown pass.
    """
    for step in rewrite_steps(graph, passes):
        graph = step.graph
    return graph


def rewrite_steps(graph: Graph, passes: Iterable[str]) -> Iterator[PassStep]:
    """Yield the result of each pass, applied to the previous one's.

    Raises:
        ValueError: unknown pass, raised before the first one runs.
    """
    names = list(passes)
    for name in names:
        if name not in _PASSES:
            raise ValueError(f"{name!r} is no pass; there are: {', '.join(_PASSES)}")
    before = _size_of(graph)
    for name in names:
        module = importlib.import_module(f"tflite_opencl.rewrites.passes.{name}")
        notes: Notes = []
        graph = module.rewrite(graph, notes)
        after = _size_of(graph)
        yield PassStep(name, graph, before, after, tuple(notes))
        before = after


def _size_of(graph: Graph) -> GraphSize:
    constants = (t.data.nbytes for t in graph.tensors if t.data is not None and not t.is_folded)
    multiply_adds = sum(products(node) for node in graph.nodes if node.outputs)
    return GraphSize(len(graph.nodes), multiply_adds, sum(constants))
