# SPDX-License-Identifier: Apache-2.0
"""The smallest model for each kernel, with each set of macros, that a GPU may run.

The nodes come from the op tests' exports, as in tests/kernels/test_build.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pytest

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.errors import Unsupported
from delegate.graph.infer import infer
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Node, read_model, write_model
from delegate.launch import Alternative
from delegate.ops._registry import Lower
from delegate.target import Target
from tests.delegate.ops import test_layers_channel_shuffle as channel_shuffle
from tests.delegate.ops.test_conv_2d_add import CASES, FLOAT_CASES
from tests.delegate.ops.test_gather import of_int4
from tests.support.cases import (
    DOTS,
    EMULATED,
    NEAREST,
    NO_FACTS,
    REGISTERS,
    SIMT,
    Strategy,
    emulated,
)
from tests.support.compare import assert_same, inputs_for, interpreter, invoke, oracle
from tests.support.fused import EVERY as TRANSFORMERS
from tests.support.fused import fused
from tests.support.guards import guarded
from tests.support.model import chain_model, op, t
from tests.support.moves import like, numbers
from tests.support.nodes import built_nodes
from tflite_opencl.oracle.in_builtins import in_builtins

# GPUs as lowering distinguishes them.
GPUS = (SIMT, NEAREST, *DOTS, EMULATED, *REGISTERS)
# NOTE: emulated NVIDIA matrix instructions take a minute each in a simulator.
LEFT_OUT = "mma"
# A kernel, its alternative, and the names of its macros. Not their values: there are hundreds, and
# most change a type or a function, but no memory access.
Key = tuple[str, str, frozenset[str]]


@dataclass(frozen=True, slots=True)
class Variant:
    """A model, and the strategy that makes one of its nodes launch certain kernels.

    Attributes:
        op: of that node, which may be a fused one; way: for all nodes with that alternative;
            keys: of the node's launches.
    """

    model: bytes
    op: str
    strategy: Strategy
    keys: frozenset[Key]


def gpu_variants() -> list[Variant]:
    """Return variants that together launch every Key, except LEFT_OUT."""
    candidates: dict[Key, list[tuple[int, Variant]]] = {}
    for model, node in _models():
        for gpu in GPUS:
            for alternative in _lowered(node, gpu):
                keys = _keys(alternative)
                if any(LEFT_OUT in kernel.split("_") for kernel, *_ in keys):
                    continue
                strategy = Strategy(str(gpu), gpu.facts, alternative.name, gpu.is_emulated)
                variant = Variant(model, node.op, strategy, keys)
                for key in keys:
                    cost = _cost(node, alternative)
                    candidates.setdefault(key, []).append((cost, variant))
    variants: list[Variant] = []
    covered: set[Key] = set()
    for key, each in candidates.items():
        if key not in covered:
            in_order = sorted(each, key=lambda candidate: candidate[0])
            variant = next((v for _, v in in_order if _is_taken(v.model)), None)
            assert variant is not None, f"TFLite takes no model that launches {key}"
            variants.append(variant)
            covered |= variant.keys
    return variants


def assert_runs(variant: Variant, device: DeviceInfo) -> None:
    """Assert TFLite's values, for floats approximately, and intact guard bytes."""
    graph = read_model(variant.model)
    in_tflite = _in_tflite(variant.model)
    cpu_kernels = oracle(in_tflite)
    if variant.op == "SUM" and graph.inputs[0].dtype == "int8":
        cpu_kernels = "builtin"  # ai-edge-litert's reference kernel of it is wrong
    given = inputs_for(graph)[0]
    with _forced(variant.strategy), guarded() as written:
        delegate = OpenCLDelegate(
            variant.model, device.index, tune="off", min_nodes_per_partition=1
        )
        interp = interpreter(variant.model, delegate, cpu_kernels)
        got = invoke(interp, given)
    taken = {(each.op, each.taken) for each in delegate.alternatives}
    assert (variant.op, variant.strategy.alternative) in taken, f"{taken}, {delegate.verdicts}"
    expected = invoke(interpreter(in_tflite, cpu_kernels=cpu_kernels), given)
    for ours, theirs in zip(got, expected, strict=True):
        if ours.dtype.kind in "fc":
            np.testing.assert_allclose(ours, theirs, 1e-3, 1e-3 * float(np.abs(theirs).max()))
        else:
            assert_same(ours, theirs, variant.strategy.alternative)
    assert written == []


def _models() -> Iterator[tuple[bytes, Node]]:
    """Yield models, and for each the node whose kernels count."""
    for node in built_nodes():
        if node.op.isupper() or node.is_custom:  # not a fused node
            yield chain_model([node]), node
    for case in (*CASES, *FLOAT_CASES):
        yield case.model(), case.node()
    for nodes in channel_shuffle.CASES.values():
        yield channel_shuffle.model_of(nodes), fused(nodes)
    for nodes in TRANSFORMERS.values():
        yield chain_model(nodes), fused(nodes)
    for index in ("int32", "int64"):
        for inner in (1, 2, 4, 8, 16):
            model = chain_model(_looked_up(index, inner))
            yield model, infer(read_model(model)).nodes[-1]
    few = op("DEQUANTIZE", [t((3,), "uint8", 0.5, 3)], [t((3,))])  # fewer than a vector has
    for nodes in ([few], _scattered(), of_int4((9, 6), [8, 0, 3], reads="DEQUANTIZE")):
        model = chain_model(nodes, outputs=nodes[-1].outputs)
        yield model, infer(read_model(model)).nodes[-1]


def _looked_up(index: str, inner: int) -> list[Node]:
    """Return a GATHER_ND whose indices are an ARG_MAX of the graph."""
    place, indices = t((1, 7), index), t((7, 1), index)
    return [
        op("ARG_MAX", [like((1, 15, 7)), numbers(1)], [place], {"output_type": index}),
        op("RESHAPE", [place, numbers([7, 1])], [indices], {"new_shape": (7, 1)}),
        op("GATHER_ND", [like((15, inner)), indices], [like((7, inner))]),
    ]


def _scattered() -> list[Node]:
    """Return a SCATTER_ND whose indices are an ARG_MAX of the graph."""
    places, indices = t((6,), "int32"), t((6, 1), "int32")
    return [
        op("ARG_MAX", [like((6, 4)), numbers(1)], [places], {"output_type": "int32"}),
        op("RESHAPE", [places, numbers([6, 1])], [indices], {"new_shape": (6, 1)}),
        op("SCATTER_ND", [indices, like((6, 2)), numbers([4, 2])], [like((4, 2))]),
    ]


def _is_taken(model: bytes) -> bool:
    """Whether TFLite runs a model, with MediaPipe's ops decomposed."""
    try:
        model = _in_tflite(model)
        interp = interpreter(model, cpu_kernels=oracle(model))
        invoke(interp, inputs_for(read_model(model))[0])
    except (RuntimeError, ValueError):
        return False
    return True


def _in_tflite(model: bytes) -> bytes:
    """Return a model with MediaPipe's custom ops decomposed into TFLite's."""
    graph = read_model(model)
    own = in_builtins(graph)
    return model if own is graph else write_model(own)


def _lowered(node: Node, strategy: Strategy) -> tuple[Alternative, ...]:
    try:
        return _with_facts(ops.lower, node, Target(rules=installed_rules()), strategy)
    except Unsupported:
        return ()


def _with_facts(
    lower: Lower, node: Node, target: Target, strategy: Strategy
) -> tuple[Alternative, ...]:
    result = lower(node, replace(target, **{**NO_FACTS, **strategy.facts}))
    return tuple(map(emulated, result)) if strategy.is_emulated else result


@contextmanager
def _forced(strategy: Strategy) -> Iterator[None]:
    """Make nodes take the strategy's alternative if they have it, and otherwise any."""
    lower = ops.lower

    def chosen(node: Node, target: Target) -> tuple[Alternative, ...]:
        result = _with_facts(lower, node, target, strategy)
        return tuple(each for each in result if each.name == strategy.alternative) or result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "lower", chosen)
        yield


def _keys(alternative: Alternative) -> frozenset[Key]:
    return frozenset(
        (launch.kernel, alternative.name, frozenset(launch.defines))
        for launch in alternative.launches
    )


def _cost(node: Node, alternative: Alternative) -> int:
    """Return the approximate work of a simulator."""
    tensors = [t for t in (*node.inputs, *node.outputs) if t is not None]
    items = sum(launch.tiles * launch.group_items for launch in alternative.launches)
    return items * 16 + sum(math.prod(t.shape) for t in tensors)
