# SPDX-License-Identifier: Apache-2.0
"""Faults that users reported of delegates and their libraries: each case stands for a report.

Shapes are those of the report, or smaller ones with the same structure.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from delegate.inspect import Graph
from tflite_opencl.conformance.cases import _reported as graphs
from tflite_opencl.conformance.cases._convolution import HYBRID, ConvCase
from tflite_opencl.models.build import Case, case, sizes

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


def _broadcasts() -> _Rows:
    kinds = ("int8", "float32")
    fault = "operands of different ranks are aligned at their first dimension"
    for op, (left, right) in itertools.product(
        ("ADD", "MUL"),
        (((4, 6, 6), (1, 1, 6, 6)), ((1, 4, 6, 6), (6, 6)), ((2, 4, 6, 6), (4, 1, 6))),
    ):
        detail = f"{op.lower()}-{sizes(left)}_{sizes(right)}"
        yield f"{_LITERT}8980", fault, kinds, detail, partial(graphs.binary, op, left, right)
    fault = "a constant of a lower rank is read as a batch"
    for shape in ((5,), (4, 5)):
        detail = f"add-2x3x4x5_constant{sizes(shape)}"
        make = partial(graphs.binary, "ADD", (2, 3, 4, 5), shape, is_constant=True)
        yield f"{_LITERT}9664", fault, ("int8", "int32"), detail, make
    fault = "the operand with one channel is not repeated along the channels"
    for left, right in (((1, 10, 1), (1, 10, 3)), ((1, 10, 1), (3,))):
        detail = f"mul-{sizes(left)}_{sizes(right)}"
        yield f"{_LITERT}141", fault, kinds, detail, partial(graphs.binary, "MUL", left, right)


def _attention() -> _Rows:
    fault = "a mask that is broadcast is added to a product of matrices by the wrong axis"
    for mask in ((1, 1, 6, 6), (1, 1, 1, 6), (1, 4, 1, 6), (1, 4, 6, 1), (1, 4, 6, 6)):
        detail = f"attention-mask{sizes(mask)}"
        yield f"{_LITERT}8593", fault, ("float32",), detail, partial(graphs.masked, mask)
    fault = "heads as the batch of tensors of rank 3: the sums after them are wrong"
    yield f"{_LITERT}8619", fault, ("float32",), "attention-heads4-rank3", graphs.rank_3


def _outputs() -> _Rows:
    kinds = ("int8", "float32")
    fault = "a sum that is an output and is read later holds one of its operands"
    yield f"{_LITERT}8599", fault, kinds, "add-output_and_read", graphs.sum_read_later
    fault = "an output that another output is computed from is not written"
    for op, number in (("MAX_POOL_2D", 27240), ("CONV_2D", 53781)):
        detail = f"{op.lower()}-of_an_output"
        yield f"{_TENSORFLOW}{number}", fault, kinds, detail, partial(graphs.output_read_by, op)
    fault = "MAX_POOL_2D changes the tensor that it reads"
    yield f"{_TENSORFLOW}38732", fault, kinds, "max_pool_2d-source_kept", graphs.pool_keeps_source
    fault = "of two outputs, one after the other, the second is not computed"
    make = partial(graphs.output_read_by, "CONV_2D", is_deep=True)
    yield f"{_TIM_VX}226", fault, ("uint8", "int8"), "conv_2d-two_outputs_in_a_row", make
    fault = "a node that reads a tensor twice is refused when it is built"
    yield f"{_TENSORFLOW}51422", fault, kinds, "concatenation-of_itself", graphs.joined_with_itself
    fault = "the operand of a residual ADD is a part of a later CONCATENATION's memory"
    yield "NVIDIA/TensorRT#4854", fault, kinds, "add-of_a_part", graphs.part_of_concatenation


def _sums() -> _Rows:
    fault = "SUM adds in fp16: a total above 65504 is infinite"
    make = partial(graphs.summed, (100.0, 200.0))
    yield f"{_LITERT}9249", fault, ("float32",), "sum-above_65504", make
    fault = "SUM loses digits"
    make = partial(graphs.summed, (-1.0, 1.0))
    yield f"{_TENSORFLOW}43393", fault, ("float32",), "sum-many", make
    fault = "a layer normalisation in fp16: the squares of differences are infinite"
    yield "microsoft/onnxruntime#31626", fault, ("float32",), "mean-of_squares", graphs.normalised


def _products() -> _Rows:
    fault = "a hybrid FULLY_CONNECTED of rank 3 before an ADD does not build"
    yield f"{_LITERT}9277", fault, HYBRID, "fully_connected-rank3-residual", graphs.residual
    fault = "an error proportional to the sum of each row of the weights"
    for batch in ((1,), (3,)):
        detail = f"fully_connected-batch{batch[0]}-positive_rows"
        make = partial(graphs.positive_rows, batch)
        yield f"{_LITERT}8979", fault, (*HYBRID, "int8"), detail, make
    fault = "values of an int8 RELU are lost"
    yield "pytorch/executorch#10961", fault, ("int8",), "relu-in5", graphs.relu
    fault = "SOFTMAX of rank 3 along the wrong axis"
    for shape in ((1, 40, 2), (3, 7, 5)):
        detail = f"softmax-in{sizes(shape)}"
        yield f"{_TIM_VX}266", fault, ("uint8", "int8"), detail, partial(graphs.softmax, shape)


def _moves() -> _Rows:
    kinds = ("int8", "float32")
    fault = "PAD of rank 3 along an axis that is not the last: the rows are shifted by one"
    for shape, edges in (
        ((16, 32, 1), ((0, 0), (0, 32), (0, 0))), ((16, 32, 8), ((0, 4), (0, 0), (0, 0))),
        ((6, 5, 4), ((2, 0), (0, 3), (0, 0))),
    ):  # fmt: skip
        detail = f"pad-in{sizes(shape)}-by{'_'.join(f'{a}_{b}' for a, b in edges)}"
        yield f"{_LITERT}9272", fault, kinds, detail, partial(graphs.padded, shape, edges)
    fault = "DEPTH_TO_SPACE by 4 reads beyond its source"
    for batch in (1, 2):
        detail = f"depth_to_space-block4-batch{batch}"
        make = partial(graphs.depth_to_space, (batch, 5, 7, 48))
        yield f"{_TENSORFLOW}60158", fault, kinds, detail, make
    fault = "RESHAPE of rank 4 to rows: channels stay in groups of four"
    yield "alibaba/MNN#211", fault, kinds, "reshape-in1x19x19x6-to1x2166", graphs.flattened
    fault = "RESHAPE after a convolution: a permutation of four dimensions for another rank"
    yield f"{_VX}136", fault, ("uint8", "int8"), "reshape-of_a_convolution", graphs.reshaped
    fault = "TRANSPOSE ends the process"
    yield f"{_TIM_VX}130", fault, ("int8",), "transpose-between_convolutions", graphs.transposed
    fault = "RESIZE_BILINEAR by two, as a transposed convolution, is wrong"
    yield f"{_VX}35", fault, ("uint8", "int8"), "resize_bilinear-by2", graphs.resized


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
    fault = "DEPTHWISE_CONV_2D: the depth multiplier is taken for the number of groups"
    make = ConvCase(op="DEPTHWISE_CONV_2D", depth_multiplier=2).graph
    yield f"{_LITERT}5839", fault, ("int8", "float32"), "depthwise_conv_2d-depth2", make
