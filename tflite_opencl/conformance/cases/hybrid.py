# SPDX-License-Identifier: Apache-2.0
"""Hybrid ops, whose float activations are quantised to int8 for int8 or int4 weights; tables."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from delegate.inspect import BITS
from tflite_opencl.conformance.cases._convolution import (
    HYBRID,
    ConvCase,
    embedding_lookup,
    gathered_int4,
)
from tflite_opencl.conformance.cases.convolutions import (
    SHAPES,
    SIDES,
    fully_connected_case,
)
from tflite_opencl.models.build import FUSED, Case, case, sizes

_depthwise = partial(ConvCase, op="DEPTHWISE_CONV_2D")
_transposed = partial(ConvCase, op="TRANSPOSE_CONV")


def layers() -> Iterator[Case]:
    """Yield the cases of ops with float activations and int8 or int4 weights."""
    for kind in HYBRID:
        for each in _hybrid_convolutions(kind):
            yield case(each.op.lower(), kind, str(each), each.graph, kind)
    for kind, asymmetric in itertools.product(HYBRID, (False, True)):
        words, own = "asymmetric" if asymmetric else "", {"asymmetric": asymmetric}
        for (in_c, out_c), batch in itertools.product(SIDES, ((1,), (3,), (2, 3))):
            yield fully_connected_case(kind, batch, in_c, out_c, words, **own)
        for fused in FUSED[1:]:
            detail = "-".join(filter(None, [words, fused.lower()]))
            yield fully_connected_case(kind, (2,), 20, 11, detail, fused=fused, **own)
        for batch in ((2, 3), (2, 2, 3)):
            detail = "-".join(filter(None, [words, "keep_dims"]))
            yield fully_connected_case(kind, batch, 12, 5, detail, keep_num_dims=True, **own)
        for (in_c, out_c), stored in itertools.product(SIDES, BITS):
            detail = "-".join(filter(None, [words, stored]))
            yield fully_connected_case(kind, (3,), in_c, out_c, detail, stored=stored, **own)
        detail = "-".join(filter(None, [words, "no_bias"]))
        yield fully_connected_case(kind, (2,), 21, 9, detail, has_bias=False, **own)
    yield from _in_blocks()


def _in_blocks() -> Iterator[Case]:
    """Yield products with int4 weights in blocks with one scale each."""
    kind = "hybrid-per-channel"
    for (blocks, block), out_c, batch in itertools.product(
        ((1, 32), (3, 32), (9, 64), (2, 256), (5, 20)), (4, 17, 64), ((1,), (3,), (2, 4))
    ):
        words, in_c = f"blocks_of_{block}", blocks * block
        yield fully_connected_case(kind, batch, in_c, out_c, words, block=block)
    for asymmetric in (False, True):
        own = {"block": 32, "asymmetric": asymmetric}
        words = "-".join(("asymmetric", "blocks_of_32")[not asymmetric :])
        yield fully_connected_case(kind, (5,), 96, 9, f"{words}-no_bias", has_bias=False, **own)
        detail = f"{words}-keep_dims"
        yield fully_connected_case(kind, (2, 3), 64, 33, detail, keep_num_dims=True, **own)


def embeddings() -> Iterator[Case]:
    """Yield lookups in tables of int8 and narrower types, by ARG_MAX results."""
    tables = ((5, 8), 3), ((33, 4, 6), 7), ((2, 130), 1), ((2, 132), 1), ((129, 64), 40)
    for kind, stored, (shape, count) in itertools.product(HYBRID, ("int8", *BITS), tables):
        if (stored, shape) == ("int2", (2, 130)):
            continue  # TFLite reads its second row at a wrong offset
        detail = "-".join([f"in{sizes(shape)}-at{count}", *[stored][stored == "int8" :]])
        make = partial(embedding_lookup, kind, shape, count, stored)
        yield case("embedding_lookup", kind, detail, make)
    for (shape, count), op in itertools.product(tables, ("DEQUANTIZE", "CAST")):
        for is_reshaped in (False, True):
            detail = f"in{sizes(shape)}-at{count}-int4-{op.lower()}{'-reshaped' * is_reshaped}"
            make = partial(gathered_int4, shape, count, op, is_reshaped)
            yield case("gather", "hybrid", detail, make)


def _hybrid_convolutions(kind: str) -> Iterator[ConvCase]:
    for (size, out_c), kernel, stride in itertools.product(
        SHAPES, ((1, 1), (3, 3), (1, 3)), ((1, 1), (2, 2))
    ):
        yield ConvCase(size=size, out_c=out_c, kernel=kernel, stride=stride)
    base = ConvCase(size=(7, 6, 5))
    for fused, batch in (("RELU", 2), ("RELU6", 3), ("RELU_N1_TO_1", 1)):
        yield replace(base, fused=fused, batch=batch, padding="VALID")
    for size, batch in (((65, 64, 4), 2), ((31, 33, 17), 1)):  # more than one quantisation block
        yield replace(base, size=size, batch=batch)
    for dilation in ((2, 2), (1, 3)):
        yield replace(base, size=(9, 11, 4), dilation=dilation, batch=2)
    for size, out_c in (((5, 5, 3), 9), ((4, 6, 8), 16), ((1, 1, 7), 5)):
        yield ConvCase(size=size, out_c=out_c, is_int4=True)
    yield from _hybrid_transposed()
    if kind == "hybrid":
        return
    yield ConvCase(size=(5, 6, 8), out_c=12, groups=2)
    for size, stride in itertools.product(
        ((7, 5, 3), (8, 8, 8), (5, 9, 17), (6, 7, 32)), ((1, 1), (2, 2))
    ):
        yield _depthwise(size=size, stride=stride)
        yield _depthwise(size=size, kernel=(5, 5), stride=stride, padding="VALID")
    for depth, size in ((2, (5, 6, 2)), (3, (7, 5, 3)), (8, (4, 4, 9))):
        yield _depthwise(size=size, depth_multiplier=depth)
    for fused, batch in (("RELU", 2), ("RELU6", 3), ("RELU_N1_TO_1", 1)):
        yield _depthwise(size=(7, 6, 5), fused=fused, batch=batch)
    yield _depthwise(size=(33, 40, 16), batch=2)
    yield _depthwise(size=(9, 11, 4), dilation=(2, 2), has_bias=False)


def _hybrid_transposed() -> Iterator[ConvCase]:
    for (size, out_c), kernel, stride in itertools.product(
        (((4, 5, 3), 8), ((3, 3, 16), 5), ((1, 1, 7), 1), ((5, 9, 33), 33)),
        ((3, 3), (2, 2), (4, 4)),
        ((1, 1), (2, 2)),
    ):
        yield _transposed(size=size, out_c=out_c, kernel=kernel, stride=stride)
    base = _transposed(size=(4, 3, 5), stride=(2, 2))
    for fused, batch in (("RELU", 2), ("RELU6", 3), ("RELU_N1_TO_1", 1)):
        yield replace(base, fused=fused, batch=batch, padding="VALID")
    yield replace(base, has_bias=False, kernel=(3, 2), stride=(2, 1))
    yield _transposed(size=(65, 64, 4), out_c=3, stride=(2, 2))  # more than one quantisation block
