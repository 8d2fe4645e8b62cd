# SPDX-License-Identifier: Apache-2.0
"""What a delegate's front end may misread: options and shapes that it does not pass on.

Each case is something that the front end of Mesa's Teflon ignores or reads past. Such a delegate
has to refuse the node, or to compute it as written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from delegate.inspect import Graph
from tflite_opencl.conformance.cases._convolution import ConvCase, fully_connected
from tflite_opencl.conformance.cases._rows import VERSIONS, Inputs, NodeTemplate
from tflite_opencl.models.build import Case, Shape, case, numbers, sizes

_SOURCE = "Mesa, teflon/tfl_device.c at 024c70fb"
_KINDS = ("uint8", "int8")  # Teflon's
_Rows = Iterator[tuple[str, NodeTemplate]]  # the fault, and a node that shows it
_Made = Iterator[tuple[str, str, Callable[[str], Graph]]]  # the fault, a name, the graph of a kind
_PICTURE: Shape = (1, 8, 6, 8)
_BIAS = "{}: a bias is read that the node does not have"


def cases() -> Iterator[Case]:
    """Yield the cases, of uint8 and int8."""
    for kind in _KINDS:
        for family in (_slices, _ranks, _shapes, _activations, _axes, _resizes):
            for fault, row in family():
                name = f"{row.op.lower()}-{row.detail}"
                yield _case(kind, fault, name, row.graph)
        for fault, name, make in _weighted():
            yield _case(kind, fault, name, make)


def _case(kind: str, fault: str, name: str, make: Callable[[str], Graph]) -> Case:
    made = case("frontend", kind, name, make, kind, op="frontend")
    return replace(made, report=_SOURCE, fault=fault)


_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_SLICES: tuple[tuple[str, Shape, Shape, Shape, Shape, Mapping[str, int]], ...] = (
    # name, shape, begin, end, strides, masks
    ("begin_mask", _PICTURE, (0, 3, 2, 0), (1, 7, 6, 8), (1, 2, 1, 1), {"begin_mask": 2}),
    ("end_mask", _PICTURE, (0, 1, 2, 0), (1, 4, 5, 8), (1, 1, 2, 1), {"end_mask": 6}),
    ("shrink", _PICTURE, (0, 2, 0, 0), (1, 3, 6, 8), (1, 1, 1, 1), {"shrink_axis_mask": 2}),
    ("new_axis", (8, 6, 8), (0, 1, 0, 0), (1, 7, 6, 8), (1, 2, 1, 1), {"new_axis_mask": 1}),
    ("ellipsis", _PICTURE, (0, 2), (1, 7), (1, 2), {"ellipsis_mask": 1}),
    ("from_the_end", _PICTURE, (0, -6, -5, 0), (1, -1, -1, 8), (1, 1, 2, 1), {}),
    ("backwards", _PICTURE, (0, 7, 0, 0), (1, 1, 6, 8), (1, -2, 1, 1), {}),
    ("rank2", (9, 12), (1, 2), (8, 11), (2, 3), {}),
    ("rank5", (1, 4, 5, 3, 2), (0, 1, 0, 0, 0), (1, 4, 4, 3, 2), (1, 1, 2, 1, 1), {}),
)


def _slices() -> _Rows:
    for name, shape, begin, end, strides, masks in _SLICES:
        fault = (
            "STRIDED_SLICE: masks are not read" if masks
            else "STRIDED_SLICE: four begins, ends and strides are read, whatever the rank"
            if "rank" in name else "STRIDED_SLICE: negative begins, ends and strides are passed on"
        )  # fmt: skip
        inputs: Inputs = [shape, *map(numbers, (begin, end, strides))]
        options = {**dict.fromkeys(_MASKS, 0), **masks}
        yield fault, NodeTemplate("STRIDED_SLICE", name, inputs, options, {"int8": 2})


def _ranks() -> _Rows:
    fault = "TRANSPOSE: four numbers of the permutation are read, whatever the rank"
    orders: tuple[tuple[Shape, Shape], ...] = (
        ((6, 10), (1, 0)), ((4, 6, 8), (2, 0, 1)), ((4, 6, 8), (0, 2, 1)),
        ((2, 3, 4, 2, 5), (0, 2, 1, 4, 3)),
    )  # fmt: skip
    for shape, order in orders:
        detail = f"in{sizes(shape)}-by{'_'.join(map(str, order))}"
        yield fault, NodeTemplate("TRANSPOSE", detail, [shape, numbers(order)], {}, {"int8": 2})
    fault = "PAD: the paddings are read as those of rank 4"
    for shape, edges in (
        ((6, 10), ((1, 2), (0, 3))), ((4, 6, 8), ((0, 0), (1, 2), (3, 0))),
        ((4, 6, 8), ((2, 1), (0, 0), (0, 0))), ((1, 2, 3, 4, 5), ((0, 0), *((1, 1),) * 4)),
        ((2, 4, 3, 8), ((1, 0), (0, 1), (2, 0), (0, 0))),
    ):  # fmt: skip
        detail = f"in{sizes(shape)}-by{'_'.join(f'{a}{b}' for a, b in edges)}"
        yield fault, NodeTemplate("PAD", detail, [shape, numbers(edges)], {}, {"int8": 2})
    fault = "tensors of a rank above 4 lose their first dimensions"
    options = {"fused_activation_function": "NONE"}
    five: Shape = (3, 2, 4, 5, 3)
    for op, count in (("ADD", 2), ("MUL", 2), ("RELU", 1)):
        row = NodeTemplate(op, "rank5", [five] * count, options if count > 1 else {}, VERSIONS)
        yield fault, row


def _shapes() -> _Rows:
    fault = "RESHAPE: four sizes are read, whatever the rank"
    for shape, to in (
        (_PICTURE, (384,)), (_PICTURE, (1, 384)), (_PICTURE, (6, 8, 8)), ((6, 10), (1, 3, 2, 5, 2)),
    ):  # fmt: skip
        detail = f"in{sizes(shape)}-to{sizes(to)}"
        yield fault, NodeTemplate("RESHAPE", detail, [shape, numbers(to)], {"new_shape": to})
    fault = "RESHAPE: -1 is passed on as a size"
    detail = f"in{sizes(_PICTURE)}-to1x48x1x-1".replace("x-1", "x_rest")
    yield fault, NodeTemplate("RESHAPE", detail, [_PICTURE, numbers((1, 48, 1, -1))], {})
    fault = "RESHAPE: a second input is read that the node does not have"
    yield fault, NodeTemplate("RESHAPE", "of_options", [_PICTURE], {"new_shape": (1, 48, 1, 8)})


def _activations() -> _Rows:
    for op in ("MUL", "SUB", "ADD"):
        how = "RELU6 is read as RELU" if op == "ADD" else "the fused activation is not read"
        for fused in ("RELU", "RELU6", "RELU_N1_TO_1"):
            if (op, fused) == ("ADD", "RELU"):
                continue
            options = {"fused_activation_function": fused}
            row = NodeTemplate(op, fused.lower(), [_PICTURE] * 2, options, {"int8": 2})
            if (op, fused) == ("ADD", "RELU_N1_TO_1"):
                how = "RELU_N1_TO_1 is not read"
            yield f"{op}: {how}", row
    for op, fused in (("AVERAGE_POOL_2D", "RELU6"), ("MAX_POOL_2D", "RELU"),
                      ("MAX_POOL_2D", "RELU_N1_TO_1")):  # fmt: skip
        pooled = {
            "padding": "VALID", "filter_height": 2, "filter_width": 2, "stride_h": 2,
            "stride_w": 2, "fused_activation_function": fused,
        }  # fmt: skip
        row = NodeTemplate(op, fused.lower(), [_PICTURE], pooled, {"int8": 2})
        yield f"{op}: the fused activation is not read", row


def _axes() -> _Rows:
    for shape, axis in ((_PICTURE, -1), ((4, 6, 8), 1), ((6, 10), 0)):
        fault = f"CONCATENATION: {'a negative axis' if axis < 0 else 'an axis'} is passed on, "
        fault += "though tensors become rank 4"
        detail = f"in{sizes(shape)}-axis{axis}"
        options = {"axis": axis, "fused_activation_function": "NONE"}
        yield fault, NodeTemplate("CONCATENATION", detail, [shape] * 2, options, {"int8": 2})
    for shape, axis in ((_PICTURE, -1), ((4, 6, 8), 1)):
        fault = "SPLIT: the axis is passed on, though tensors become rank 4"
        detail, versions = f"in{sizes(shape)}-axis{axis}", {"int8": 2}
        inputs: Inputs = [numbers(axis), shape]
        yield fault, NodeTemplate("SPLIT", detail, inputs, {"num_splits": 2}, versions, outputs=2)


def _resizes() -> _Rows:
    for name in ("align_corners", "half_pixel_centers"):
        options = {"align_corners": False, "half_pixel_centers": False, name: True}
        inputs: Inputs = [_PICTURE, numbers((13, 11))]
        fault = "RESIZE_NEAREST_NEIGHBOR: align_corners and half_pixel_centers are not read"
        yield fault, NodeTemplate("RESIZE_NEAREST_NEIGHBOR", name, inputs, options, {"int8": 2})


def _weighted() -> _Made:
    for op in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        fault = f"{op}: RELU_N1_TO_1 fails an assertion, or is not read"
        yield fault, f"{op.lower()}-relu_n1_to_1", partial(_clamped, op)
    # TFLite itself refuses a CONV_2D without a bias.
    made = ConvCase(op="DEPTHWISE_CONV_2D", has_bias=False).graph
    yield _BIAS.format("DEPTHWISE_CONV_2D"), "depthwise_conv_2d-no_bias", made
    make = partial(fully_connected, in_c=21, out_c=11)
    one = "FULLY_CONNECTED"
    yield (f"{one}: the inputs of rank 2 become rank 4", "fully_connected-rank2",
           partial(make, batch=(3,)))  # fmt: skip
    yield (f"{one}: the dimensions of the input are not joined", "fully_connected-rank3",
           partial(make, batch=(2, 3)))  # fmt: skip
    yield (f"{one}: keep_num_dims is not read", "fully_connected-keep_dims",
           partial(make, batch=(2, 3), keep_num_dims=True))  # fmt: skip
    yield (_BIAS.format(one), "fully_connected-no_bias",
           partial(make, batch=(3,), has_bias=False))  # fmt: skip
    for fused in ("RELU", "RELU6"):
        yield (f"{one}: the fused activation is not read", f"fully_connected-{fused.lower()}",
               partial(make, batch=(3,), fused=fused))  # fmt: skip


def _clamped(op: str, kind: str) -> Graph:
    """Return a convolution with many results from -1 to 1."""
    out = {"uint8": (0.03, 123), "int8": (0.03, -5)}[kind]
    return ConvCase(op=op, fused="RELU_N1_TO_1", out=out).graph(kind)
