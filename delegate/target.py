# SPDX-License-Identifier: Apache-2.0
"""Input of lowering beside the graph: device facts, and the arithmetic of the calling TFLite.

It is plain data except for `Rules.float_function`, which finds functions of the C library. They are
pure and process-wide, and ops need them to reproduce TFLite's tables bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


def _no_function(_: str) -> Callable[[float], float] | None:
    return None


@dataclass(frozen=True, slots=True)
class Rules:
    """The arithmetic of the installed TFLite where its versions differ."""

    runtime: str = "ai-edge-litert"  # whose reference kernels are the oracle
    version: str = ""  # "" = unknown, treated as the newest
    fully_connected_double_rounding: bool = False  # tflite-runtime's; ai-edge-litert rounds once
    older_comparisons: bool = False  # of int16: tflite-runtime ignores scales, or fails
    # tflite-runtime's sums of int16 inputs are int32 unless the bias is int64; else they are int64.
    int16_sums_of_int32: bool = False
    # tflite-runtime's BATCH_MATMUL, with transposed left matrices and a broadcast right one.
    batch_matmul_mixes_rows: bool = False
    # tflite-runtime's REVERSE_V2 reverses only the first of several axes.
    reverses_first_axis: bool = False
    saturating_cast: bool = True  # from floats; undefined out of range in tflite-runtime
    # DIV of int8 and int16, SQRT of int8 and int16, RSQRT, LOG and PRELU of int16 run; in
    # tflite-runtime they fail.
    newer_types: bool = True
    # A negative alpha's multiplier is that of its magnitude, negated after rounding.
    leaky_relu_by_size: bool = True
    # ARG_MAX and ARG_MIN along any axis but the last: a NaN is replaced by the next element.
    arg_max_nan_gives_way: bool = True
    # Layer normalisation of int8 LSTMs overflows 32 bits, which is undefined in C: tflite-runtime's
    # products wrap, ai-edge-litert's do not.
    norm_products_wrap: bool = False
    # Bidirectional LSTMs with weights for an auxiliary input; tflite-runtime reads out of bounds.
    linked_lstms: bool = True
    saturating_sums: bool = True  # SUM of int16; tflite-runtime's sums wrap
    resizes_newer_types: bool = True  # RESIZE_NEAREST_NEIGHBOR of int32, bool and float16
    # The architecture of TFLite's kernels. ai-edge-litert was also compared on aarch64: there
    # hybrid ops round only once when adding a scaled sum.
    processor: str = "x86_64"
    # On aarch64 with dot products they round twice for some sizes of several rows. None:
    # unknown.
    rounds_rows_twice: bool | None = field(default=None, compare=False)
    # How hybrid ops quantise a row of floats. ai-edge-litert on x86 runs translated NEON code,
    # which adds a half and truncates; its sums of weights have bugs of their own.
    rows_round_by_adding: bool = True
    # tflite-runtime on x86: a row's range is a double; the zero point is added before rounding.
    rows_in_doubles: bool = False
    # FULLY_CONNECTED of float rows and int8 weights with per-channel scales: only the bias.
    hybrid_loses_channels: bool = False
    # CONV_2D of int4 weights; tflite-runtime reads two of them as one.
    int4_convolutions: bool = True
    # FULLY_CONNECTED of int4 weights with blockwise scales.
    knows_blocks: bool = True
    # EMBEDDING_LOOKUP of a table with per-row scales; tflite-runtime returns zeros.
    embedding_scales_a_row: bool = True
    # The C library's float function of this name ("tanhf"), which TFLite fills its tables with;
    # None if not found.
    float_function: Callable[[str], Callable[[float], float] | None] = field(
        default=_no_function, compare=False, repr=False
    )


@dataclass(frozen=True, slots=True)
class Target:
    """Facts of a device for lowering; each was queried or measured, none is derived from a name."""

    device_type: str = "gpu"  # "gpu", "accelerator", "cpu" or "custom"
    vector_width: int = 1  # native lanes of a 32-bit integer vector; 1 = one lane per work-item
    compute_units: int = 1
    # 32-bit values that a work-item is certain to keep in registers; 0: unknown.
    registers: int = 0
    # Elements that a GPU work-item loads at once, of 16 bytes: 4 float32 or 8 fp16.
    load_lanes: int = 4
    # Names of the features of delegate/isa.py that passed their self-tests.
    isa: frozenset[str] = frozenset()
    rules: Rules = field(default_factory=Rules)
    is_ieee: bool = False  # precision "ieee": see delegate/plan/ieee.py

    def keeps(self, values: int) -> bool:
        """Whether a work-item's registers hold this many values, or that is unknown."""
        return not self.registers or values <= self.registers

    @property
    def group_items(self) -> int:
        """Work-group size: 1 if one item's vectors fill the lanes, else 64."""
        return 1 if self.device_type == "cpu" and self.vector_width > 1 else 64
