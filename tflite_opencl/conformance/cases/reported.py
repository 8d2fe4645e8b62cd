# SPDX-License-Identifier: Apache-2.0
"""Faults that users reported of delegates and their libraries: each case stands for a report.

Shapes are those of the report, or smaller ones with the same structure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from delegate.inspect import Graph, Node, Tensor
from tflite_opencl.conformance.cases._convolution import HYBRID, ConvCase, fully_connected
from tflite_opencl.conformance.cases._rows import UNIT, VERSIONS, one, step
from tflite_opencl.models.build import (
    Case,
    Shape,
    case,
    constant,
    dtype_of,
    graph,
    integers,
    numbers,
    seeded,
    sizes,
    tensor,
    usual,
)

_PLAIN = {"fused_activation_function": "NONE"}
_LITERT, _TENSORFLOW = "google-ai-edge/LiteRT#", "tensorflow/tensorflow#"
_TIM_VX, _VX = "VeriSilicon/TIM-VX#", "VeriSilicon/tflite-vx-delegate#"
# The report; the fault there; what is special and the graph, for each type.
_Rows = Iterator[tuple[str, str, Sequence[str], str, Callable[[str], Graph]]]


def cases() -> Iterator[Case]:
    """Yield the cases of all reports."""
    for family in (_broadcasts, _attention, _outputs, _sums, _products, _moves, _convolutions):
        for report, fault, kinds, detail, make in family():
            for kind in kinds:
                made = case("reported", kind, detail, make, kind, op="reported")
                yield replace(made, report=report, fault=fault)


def _binary(op: str, left: Shape, right: Shape, kind: str, is_constant: bool = False) -> Graph:
    dtype = dtype_of(kind)
    second = usual(right, dtype)
    if is_constant:
        data = integers(seeded(right, kind), right, dtype) % 100
        second = replace(second, data=data)
    options, version = _PLAIN, VERSIONS.get(dtype, 1)
    return one(op, [usual(left, dtype), second], usual((1,), dtype, True), options, version)


def _broadcasts() -> _Rows:
    kinds = ("int8", "float32")
    fault = "operands of different ranks are aligned at their first dimension"
    for op, (left, right) in itertools.product(
        ("ADD", "MUL"),
        (((4, 6, 6), (1, 1, 6, 6)), ((1, 4, 6, 6), (6, 6)), ((2, 4, 6, 6), (4, 1, 6))),
    ):
        detail = f"{op.lower()}-{sizes(left)}_{sizes(right)}"
        yield f"{_LITERT}8980", fault, kinds, detail, partial(_binary, op, left, right)
    fault = "a constant of a lower rank is read as a batch"
    for shape in ((5,), (4, 5)):
        detail = f"add-2x3x4x5_constant{sizes(shape)}"
        make = partial(_binary, "ADD", (2, 3, 4, 5), shape, is_constant=True)
        yield f"{_LITERT}9664", fault, ("int8", "int32"), detail, make
    fault = "the operand with one channel is not repeated along the channels"
    for left, right in (((1, 10, 1), (1, 10, 3)), ((1, 10, 1), (3,))):
        detail = f"mul-{sizes(left)}_{sizes(right)}"
        yield f"{_LITERT}141", fault, kinds, detail, partial(_binary, "MUL", left, right)


def _step(op: str, inputs: Sequence[Tensor | None], *rest: object, like: str = "float32") -> Node:
    return step(op, inputs, [tensor((1,), like)], *rest)  # type: ignore[arg-type]


def _attention() -> _Rows:
    fault = "a mask that is broadcast is added to a product of matrices by the wrong axis"
    for mask in ((1, 1, 6, 6), (1, 1, 1, 6), (1, 4, 1, 6), (1, 4, 6, 1), (1, 4, 6, 6)):
        detail = f"attention-mask{sizes(mask)}"
        yield f"{_LITERT}8593", fault, ("float32",), detail, partial(_masked, mask)
    fault = "heads as the batch of tensors of rank 3: the sums after them are wrong"
    yield f"{_LITERT}8619", fault, ("float32",), "attention-heads4-rank3", _rank_3


def _masked(mask: Shape, kind: str) -> Graph:
    """Return softmax(q k^T scale + mask) v, with four heads."""
    q, k, v = (tensor((1, 4, 6, 8)) for _ in "qkv")
    logits = _step("BATCH_MATMUL", [q, k], {"adj_y": True})
    scaled = _step("MUL", [*logits.outputs, constant(np.float32(0.35))], _PLAIN)
    masked = _step("ADD", [*scaled.outputs, tensor(mask)], _PLAIN)
    shares = _step("SOFTMAX", masked.outputs, {"beta": 1.0})
    return graph([logits, scaled, masked, shares, _step("BATCH_MATMUL", [*shares.outputs, v])])


def _rank_3(kind: str) -> Graph:
    """Return the attention of 4 heads as a batch, joined, projected and added to its input."""
    q, k, v, source = *(tensor((4, 6, 8)) for _ in "qkv"), tensor((1, 6, 32))
    rng = seeded("heads", kind)
    weights, bias = (
        constant(rng.standard_normal(shape).astype(np.float32)) for shape in ((32, 32), (32,))
    )
    nodes = [_step("BATCH_MATMUL", [q, k], {"adj_y": True})]
    nodes.append(_step("SOFTMAX", nodes[-1].outputs, {"beta": 1.0}))
    nodes.append(_step("BATCH_MATMUL", [*nodes[-1].outputs, v]))
    nodes.append(_step("TRANSPOSE", [*nodes[-1].outputs, numbers((1, 0, 2))]))
    nodes.append(_step("RESHAPE", [*nodes[-1].outputs, numbers((1, 6, 32))]))
    joined = {**_PLAIN, "keep_num_dims": True}
    nodes.append(_step("FULLY_CONNECTED", [*nodes[-1].outputs, weights, bias], joined))
    nodes.append(_step("ADD", [source, *nodes[-1].outputs], _PLAIN))
    return graph(nodes)


def _outputs() -> _Rows:
    kinds = ("int8", "float32")
    fault = "a sum that is an output and is read later holds one of its operands"
    yield f"{_LITERT}8599", fault, kinds, "add-output_and_read", _sum_read_later
    fault = "an output that another output is computed from is not written"
    for op, number in (("MAX_POOL_2D", 27240), ("CONV_2D", 53781)):
        detail = f"{op.lower()}-of_an_output"
        yield f"{_TENSORFLOW}{number}", fault, kinds, detail, partial(_output_read_by, op)
    fault = "MAX_POOL_2D changes the tensor that it reads"
    yield f"{_TENSORFLOW}38732", fault, kinds, "max_pool_2d-source_kept", _pool_keeps_source
    fault = "of two outputs, one after the other, the second is not computed"
    yield (
        f"{_TIM_VX}226",
        fault,
        ("uint8", "int8"),
        "conv_2d-two_outputs_in_a_row",
        (partial(_output_read_by, "CONV_2D", is_deep=True)),
    )
    fault = "a node that reads a tensor twice is refused when it is built"
    yield f"{_TENSORFLOW}51422", fault, kinds, "concatenation-of_itself", _joined_with_itself
    fault = "the operand of a residual ADD is a part of a later CONCATENATION's memory"
    yield "NVIDIA/TensorRT#4854", fault, kinds, "add-of_a_part", _part_of_concatenation


def _sum_read_later(kind: str) -> Graph:
    left, right = (usual((1, 8, 6, 4), dtype_of(kind)) for _ in "ab")
    total, version = usual((1,), left.dtype, True), VERSIONS.get(left.dtype, 1)
    added = step("ADD", [left, right], [total], _PLAIN, version)
    summed = step("SUM", [*added.outputs, numbers((1, 2, 3))], [total], {"keep_dims": True},
                  VERSIONS.get(left.dtype, 1))  # fmt: skip
    return graph([added, summed], outputs=[*summed.outputs, *added.outputs])


def _conv(kind: str, source: Tensor | None = None, **keywords: object) -> Node:
    out = {"uint8": (0.03, 123), "int8": (0.03, -5)}.get(kind)
    size = source.shape[1:] if source else (8, 6, 4)
    made = ConvCase(size=size, out_c=4, out=out, **keywords)  # type: ignore[arg-type]
    return made.node(kind, source)


def _pool(source: Tensor) -> Node:
    options = {
        "padding": "SAME", "filter_height": 2, "filter_width": 2, "stride_h": 1, "stride_w": 1,
        **_PLAIN,
    }  # fmt: skip
    return step("MAX_POOL_2D", [source], [source], options, VERSIONS.get(source.dtype, 1))


def _output_read_by(op: str, kind: str, is_deep: bool = False) -> Graph:
    nodes = [_conv(kind)]
    if is_deep:
        nodes.append(_conv(kind, nodes[-1].outputs[0], fused="RELU"))
    outputs = [*nodes[-1].outputs]
    nodes.append(_pool(outputs[0]) if op == "MAX_POOL_2D" else _conv(kind, outputs[0]))
    return graph(nodes, outputs=[*outputs, *nodes[-1].outputs])


def _pool_keeps_source(kind: str) -> Graph:
    conv = _conv(kind, fused="RELU")
    pooled = _pool(*conv.outputs)
    again = step("ADD", [*conv.outputs, *pooled.outputs], conv.outputs, _PLAIN,
                 VERSIONS.get(pooled.outputs[0].dtype, 1))  # fmt: skip
    return graph([conv, pooled, again], outputs=[*pooled.outputs, *conv.outputs, *again.outputs])


def _joined_with_itself(kind: str) -> Graph:
    conv = _conv(kind)
    options, version = {"axis": 3, **_PLAIN}, VERSIONS.get(conv.outputs[0].dtype, 1)
    return graph([conv, step("CONCATENATION", [*conv.outputs] * 2, conv.outputs, options, version)])


def _part_of_concatenation(kind: str) -> Graph:
    """Return a split whose second half goes through a bottleneck and is joined, too."""
    first = ConvCase(size=(8, 6, 4), out_c=8, out=(0.03, -5) if kind == "int8" else None)
    whole = first.node(kind, None)
    split = step("SPLIT", [numbers(3), *whole.outputs], [*whole.outputs] * 2, {"num_splits": 2})
    left, right = split.outputs
    inner = _conv(kind, right, fused="RELU")
    version = VERSIONS.get(right.dtype, 1)
    added = step("ADD", [right, *inner.outputs], [right], _PLAIN, version)
    parts = [left, right, *added.outputs]
    joined = step("CONCATENATION", parts, [right], {"axis": 3, **_PLAIN}, version)
    return graph([whole, split, inner, added, joined])


def _sums() -> _Rows:
    fault = "SUM adds in fp16: a total above 65504 is infinite"
    yield f"{_LITERT}9249", fault, ("float32",), "sum-above_65504", partial(_summed, (100.0, 200.0))
    fault = "SUM loses digits"
    yield f"{_TENSORFLOW}43393", fault, ("float32",), "sum-many", partial(_summed, (-1.0, 1.0))


def _summed(limits: tuple[float, float], kind: str) -> Graph:
    """Return the mean of squeeze and excite: a sum over height and width, then a scale."""
    summed = _step("SUM", [tensor((1, 56, 56, 8), limits=limits), numbers((1, 2))],
                   {"keep_dims": True})  # fmt: skip
    share = constant(np.float32(1 / 56**2))
    return graph([summed, _step("MUL", [*summed.outputs, share], _PLAIN)])


def _products() -> _Rows:
    fault = "a hybrid FULLY_CONNECTED of rank 3 before an ADD does not build"
    yield f"{_LITERT}9277", fault, HYBRID, "fully_connected-rank3-residual", _residual
    fault = "an error proportional to the sum of each row of the weights"
    for batch in ((1,), (3,)):
        detail = f"fully_connected-batch{batch[0]}-positive_rows"
        yield f"{_LITERT}8979", fault, (*HYBRID, "int8"), detail, partial(_positive_rows, batch)
    fault = "values of an int8 RELU are lost"
    yield "pytorch/executorch#10961", fault, ("int8",), "relu-in5", _relu
    fault = "SOFTMAX of rank 3 along the wrong axis"
    for shape in ((1, 40, 2), (3, 7, 5)):
        detail = f"softmax-in{sizes(shape)}"
        yield f"{_TIM_VX}266", fault, ("uint8", "int8"), detail, partial(_softmax, shape)


def _relu(kind: str) -> Graph:
    return one("RELU", [tensor((5,), kind, 0.1)], tensor((1,), kind, 0.1), {}, 2)


def _residual(kind: str) -> Graph:
    made = fully_connected(kind, (1, 6), 16, 16, keep_num_dims=True)
    (product,) = made.nodes
    source = made.inputs[0]
    return graph([product, _step("ADD", [source, *product.outputs], _PLAIN)], [source])


def _positive_rows(batch: Shape, kind: str) -> Graph:
    made = fully_connected(kind, batch, 64, 12)
    (node,) = made.nodes
    weights = node.inputs[1]
    assert weights is not None
    assert weights.data is not None
    rows = np.abs(weights.data.astype(np.int16)).astype(np.int8)
    inputs = (node.inputs[0], replace(weights, data=rows), *node.inputs[2:])
    return graph([replace(node, inputs=inputs)])


def _softmax(shape: Shape, kind: str) -> Graph:
    out = tensor((1,), kind, *UNIT[kind])
    return one("SOFTMAX", [usual(shape, kind)], out, {"beta": 1.0}, VERSIONS.get(kind, 1))


def _moves() -> _Rows:
    kinds = ("int8", "float32")
    fault = "PAD of rank 3 along an axis that is not the last: the rows are shifted by one"
    for shape, edges in (
        ((16, 32, 1), ((0, 0), (0, 32), (0, 0))), ((16, 32, 8), ((0, 4), (0, 0), (0, 0))),
        ((6, 5, 4), ((2, 0), (0, 3), (0, 0))),
    ):  # fmt: skip
        detail = f"pad-in{sizes(shape)}-by{'_'.join(f'{a}_{b}' for a, b in edges)}"
        yield f"{_LITERT}9272", fault, kinds, detail, partial(_padded, shape, edges)
    fault = "DEPTH_TO_SPACE by 4 reads beyond its source"
    for batch in (1, 2):
        detail = f"depth_to_space-block4-batch{batch}"
        make = partial(_depth_to_space, (batch, 5, 7, 48))
        yield f"{_TENSORFLOW}60158", fault, kinds, detail, make
    fault = "RESHAPE of rank 4 to rows: channels stay in groups of four"
    yield "alibaba/MNN#211", fault, kinds, "reshape-in1x19x19x6-to1x2166", _flattened
    fault = "TRANSPOSE ends the process"
    yield f"{_TIM_VX}130", fault, ("int8",), "transpose-between_convolutions", _transposed
    fault = "RESIZE_BILINEAR by two, as a transposed convolution, is wrong"
    yield f"{_VX}35", fault, ("uint8", "int8"), "resize_bilinear-by2", _resized


def _flattened(kind: str) -> Graph:
    inputs = [usual((1, 19, 19, 6), kind), numbers((1, 2166))]
    return one("RESHAPE", inputs, usual((1,), kind), {"new_shape": (1, 2166)})


def _padded(shape: Shape, edges: Sequence[tuple[int, int]], kind: str) -> Graph:
    inputs = [usual(shape, kind), numbers(edges)]
    return one("PAD", inputs, usual((1,), kind), {}, 2 if kind == "int8" else 1)


def _depth_to_space(shape: Shape, kind: str) -> Graph:
    return one("DEPTH_TO_SPACE", [usual(shape, kind)], usual((1,), kind), {"block_size": 4})


def _transposed(kind: str) -> Graph:
    conv = _conv(kind)
    turned = step("TRANSPOSE", [*conv.outputs, numbers((0, 2, 1, 3))], conv.outputs, {}, 2)
    return graph([conv, turned, _conv(kind, turned.outputs[0])])


def _resized(kind: str) -> Graph:
    source = usual((1, 5, 7, 12), kind)
    options = {"align_corners": False, "half_pixel_centers": True}
    inputs, version = [source, numbers((10, 14))], VERSIONS.get(kind, 1)
    return one("RESIZE_BILINEAR", inputs, source, options, version)


def _convolutions() -> _Rows:
    fault = "TRANSPOSE_CONV with several channels is wrong"
    make = ConvCase(op="TRANSPOSE_CONV", size=(5, 4, 3), out_c=6, stride=(2, 2)).graph
    yield f"{_TIM_VX}277", fault, ("uint8", "int8"), "transpose_conv-in5x4x3-out6", make
    fault = "CONV_2D 3x3 differs from the CPU"
    make = ConvCase(size=(16, 16, 8), out_c=16).graph
    yield f"{_VX}210", fault, ("int8", "int8-per-channel"), "conv_2d-in16x16x8-out16", make
    fault = "CONV_2D 3x3 with 24 channels is wrong"
    make = ConvCase(size=(24, 20, 24), out_c=24).graph
    yield "alibaba/MNN#377", fault, ("float32",), "conv_2d-in24x20x24-out24", make
