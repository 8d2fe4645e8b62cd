# SPDX-License-Identifier: Apache-2.0
"""What lowering may know: the facts of a device, and the arithmetic of the TFLite that calls.

All of it is plain data but one field: `Rules.float_function` finds functions of the C library. They
are pure and belong to the process, and ops need them to fill TFLite's tables to the last bit.
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
    version: str = ""  # "" = unknown, taken as the newest
    fully_connected_double_rounding: bool = False  # tflite-runtime's; ai-edge-litert rounds once
    older_comparisons: bool = False  # of int16: tflite-runtime takes them as they are, or fails
    # tflite-runtime's sums of int16 inputs are int32 unless the bias is int64; else they are int64.
    int16_sums_of_int32: bool = False
    # tflite-runtime's BATCH_MATMUL, of transposed left matrices with one right matrix for several.
    batch_matmul_mixes_rows: bool = False
    # tflite-runtime's REVERSE_V2, of several axes the first alone.
    reverses_first_axis: bool = False
    saturating_cast: bool = True  # from floats; tflite-runtime leaves those out of range to C
    # DIV of int8 and int16, SQRT of int8 and int16, RSQRT, LOG and PRELU of int16 run; in
    # tflite-runtime they fail.
    newer_types: bool = True
    # A negative alpha's multiplier is its size's, with the sign put on what that rounds to.
    leaky_relu_by_size: bool = True
    # ARG_MAX and ARG_MIN along an axis that is not the last: a NaN gives way to the next element.
    arg_max_nan_gives_way: bool = True
    # Layer normalisation of int8 LSTMs overflows 32 bits, which is undefined in C: tflite-runtime's
    # products wrap, and ai-edge-litert's are whole.
    norm_products_wrap: bool = False
    # LSTMs of both directions, of an auxiliary input with weights; tflite-runtime reads past it.
    linked_lstms: bool = True
    saturating_sums: bool = True  # SUM of int16; tflite-runtime's sums wrap
    resizes_newer_types: bool = True  # RESIZE_NEAREST_NEIGHBOR of int32, bool and float16
    # What TFLite's kernels are compiled for. ai-edge-litert's were compared on aarch64, too: there
    # hybrid ops round a scaled sum and what it is added to once.
    processor: str = "x86_64"
    # On aarch64 processors with dot products, but of some sizes of several rows: then twice. None:
    # nobody could be asked.
    rounds_rows_twice: bool | None = field(default=None, compare=False)
    # How hybrid ops quantise a row of floats. ai-edge-litert on x86 runs NEON's code translated,
    # which adds a half and takes the integer part; its sums of weights have faults of their own.
    rows_round_by_adding: bool = True
    # tflite-runtime on x86: a row's range is a double, the zero point is added before rounding.
    rows_in_doubles: bool = False
    # FULLY_CONNECTED of float rows and int8 weights with a scale a channel: the bias alone.
    hybrid_loses_channels: bool = False
    # CONV_2D of int4 weights; tflite-runtime reads two of them as one.
    int4_convolutions: bool = True
    # FULLY_CONNECTED of int4 weights in blocks, which have a scale each.
    knows_blocks: bool = True
    # EMBEDDING_LOOKUP of a table with a scale a row; tflite-runtime's results are zeros.
    embedding_scales_a_row: bool = True
    # The C library's float function of a name ("tanhf"), which TFLite fills its tables with; None
    # where it is not found.
    float_function: Callable[[str], Callable[[float], float] | None] = field(
        default=_no_function, compare=False, repr=False
    )


@dataclass(frozen=True, slots=True)
class Target:
    """What lowering may know of a device; every fact was asked or measured, none is a name."""

    device_type: str = "gpu"  # "gpu", "accelerator", "cpu" or "custom"
    vector_width: int = 1  # native lanes of a 32-bit integer vector; 1 = one lane a work-item
    compute_units: int = 1
    # 32-bit values that a work-item surely keeps in registers; 0: not known.
    registers: int = 0
    # Elements that a work-item of a GPU loads at once, of 16 bytes: 4 floats, or 8 halves.
    load_lanes: int = 4
    # Instructions beyond OpenCL C 1.2 that a numeric self-test proved: "vnni", "avx2", "dp4a", ...
    isa: frozenset[str] = frozenset()
    rules: Rules = field(default_factory=Rules)

    def keeps(self, values: int) -> bool:
        """Whether a work-item's registers keep so many values, or nobody knows."""
        return not self.registers or values <= self.registers

    @property
    def group_items(self) -> int:
        """Work-items a work-group: 1 where one item's vectors fill the lanes, else 64."""
        return 1 if self.device_type == "cpu" and self.vector_width > 1 else 64
