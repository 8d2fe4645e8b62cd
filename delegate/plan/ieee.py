# SPDX-License-Identifier: Apache-2.0
"""Precision "ieee": float results with the same bits on every device.

Products and sums of floats, each rounded to the nearest, are fully specified by IEEE 754, so a
kernel that performs them in a fixed order gives the same bits everywhere. Ops are unaware of this,
as of fp16: of a node's alternatives `in_order` keeps those whose kernels have the order of TFLite's
reference kernels, and defines the macro IEEE for them. Then nothing is fused (float.clh), a bias
comes last, and quotients and roots are the nearest floats (quotient.clh). EXP and other functions
are polynomials of such steps (math.clh). Where the reference calls the C library they may differ
from it, but not between devices. Everything else is refused: what passes would make of nodes, which
then stay apart.
"""

from __future__ import annotations

import platform
from collections.abc import Collection
from dataclasses import replace

from delegate.errors import Unsupported
from delegate.graph.float_results import COPY, SELECTION, float_result
from delegate.graph.ir import Node, Tensor
from delegate.graph.pool_3d import AVERAGE_POOL_3D, AVG_POOL_3D
from delegate.isa import DENORMALS, DIVISION, IEEE
from delegate.launch import Alternative

# Kernels with a fixed order of float operations. Each lane of those with vectors is another result.
KERNELS = frozenset(
    [
        *("conv_2d_float", "conv_2d_tiled_float", "conv_2d_1x1_float", "conv_2d_groups_float"),
        *("depthwise_conv_2d_float", "depthwise_conv_2d_vector_float"),
        *("depthwise_conv_2d_3x3_float", "depthwise_conv_2d_columns_float"),
        *("batch_matmul_float", "batch_matmul_vector_float"),
        *("conv_3d_float", "conv_3d_transpose_float"),
        *("transpose_conv_float", "transpose_conv_vector_float"),
        *("activation_float", "binary_float", "unary_float", "prelu_float", "prelu_row_float"),
        *("pool_2d_float", "pool_2d_vector_float", "pool_3d_float"),
        *("reduce", "reduce_vector", "cumsum", "scatter_nd", "scatter_nd_computed"),
        *("reduce_window", "stablehlo_scatter", "resize_bilinear", "picture"),
        *("softmax_float", "softmax_row_float", "log_softmax_float", "l2_normalization_float"),
        *("lstm_float", "lstm_sums_float", "lstm_sums_hybrid", "lstm_cells_float"),
        *("lstm_output_float", "lstm_projection_float", "lstm_projection_hybrid"),
        *("rnn_float", "rnn_hybrid", "svdf_float", "svdf_hybrid"),
        *("rfft2d_row_float", "rfft2d_columns_float", "complex_float"),
        *("scaled_float", "rope_float", "logistic_mul_float", "silu_mul_float"),
        *("detections_boxes", "detections_best", "detections_select", "detections_output"),
    ]
)
# Kernels that only move values, compare them, or convert them exactly, or equal the reference with
# any precision. All others of family "hybrid" do so: hybrid.clh has what follows sums of int8.
EXACT = frozenset(
    [
        *("quantize_row_float", "quantize_row_range_float", "quantize_row_part_float"),
        *("copy", "copy_row", "channel_shuffle", "one_hot", "cast", "lookup", "lookup_vector"),
        *("arg_max", "arg_max_row", "arg_max_vector", "dequantize", "dequantize_vector"),
        *("dequantize_int4", "quantize_float", "quantize_vector_float", "halves_float"),
        "copy_columns",
    ]
)
# Ops whose reference calls functions of the C library, computes in doubles, or, for pools of
# volumes, is another op's kernel: equal between devices, not to the reference.
UNLIKE_REFERENCE = frozenset(
    [
        *("EXP", "LOG", "SIN", "COS", "POW", "ATAN2", "ELU", "GELU", "LOGISTIC", "TANH"),
        *("SOFTMAX", "LOG_SOFTMAX", AVERAGE_POOL_3D, AVG_POOL_3D),
        *("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM"),
        *("RFFT2D", "COMPLEX_ABS", "NON_MAX_SUPPRESSION_V5", "TFLite_Detection_PostProcess"),
    ]
)
# Ops that TFLite computes with vectors of four floats, and on Arm with fused operations.
_OF_FOURS = ("RNN", "SVDF")
_X86 = ("x86_64", "AMD64")
_WITHOUT_ARITHMETIC = (COPY, SELECTION)
_FLOATS = ("float32", "float16", "complex64")


def warning(proven: Collection[str]) -> str:
    """Return what users of this precision should know about a device; "" if it has all."""
    if IEEE not in proven:
        return f'{_UNPROVEN}; with precision "ieee" nodes with floats stay on the CPU'
    if DENORMALS not in proven:
        return "floats below 2^-126 are zeros here: results made of such differ from other devices'"
    return ""


_UNPROVEN = "not proven to round each product and sum of floats to the nearest"


def in_order(
    node: Node, alternatives: tuple[Alternative, ...], proven: Collection[str]
) -> tuple[Alternative, ...]:
    """Return the alternatives with the same bits on every device.

    Raises:
        Unsupported: there are none, or this device is not proven to round as IEEE 754 says.
    """
    if not any(map(_is_computed_float, (*node.inputs, *node.outputs))):
        return alternatives
    if float_result(node.op).kind in _WITHOUT_ARITHMETIC:
        return alternatives
    if IEEE not in proven:
        raise Unsupported(f'precision "ieee": this device is {_UNPROVEN}')
    defines = {"IEEE": 1, "EXACT_DIVISION": int(DIVISION in proven)}
    found = tuple(
        _with_defines(each, defines)
        for each in alternatives
        if not (_kernels_without_order(each) or _rounds_otherwise(each))
    )
    if not found:
        unordered = _kernels_without_order(alternatives[-1])
        raise Unsupported(f'precision "ieee": {", ".join(unordered)} has no fixed order of sums')
    return found


def _kernels_without_order(alternative: Alternative) -> list[str]:
    kernels = dict.fromkeys(launch.kernel for launch in alternative.launches)
    ordered = KERNELS | EXACT
    return [each for each in kernels if each not in ordered and not each.endswith("_hybrid")]


def _rounds_otherwise(alternative: Alternative) -> bool:
    """Whether TFLite on aarch64 adds with one rounding what this adds with two: an LSTM's parts."""
    defines = [launch.defines for launch in alternative.launches]
    return any("IN_TWO_PARTS" in each for each in defines) and any(
        each.get("ROUNDS_ONCE") for each in defines
    )


def _with_defines(alternative: Alternative, defines: dict[str, int]) -> Alternative:
    launches = (
        replace(launch, defines={**launch.defines, **defines})
        if launch.kernel in KERNELS
        else launch
        for launch in alternative.launches
    )
    return replace(alternative, launches=tuple(launches))


def _is_computed_float(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.dtype in _FLOATS and tensor.data is None


def is_equal_to_reference(node: Node) -> bool:
    """Whether a node's floats have the bits of TFLite's reference kernels with this precision."""
    has_function = node.options.get("fused_activation_function") == "TANH"
    has_order = platform.machine() in _X86 or not node.op.endswith(_OF_FOURS)
    return node.op not in UNLIKE_REFERENCE and not has_function and has_order
