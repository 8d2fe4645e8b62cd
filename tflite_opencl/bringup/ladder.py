# SPDX-License-Identifier: Apache-2.0
"""The steps of the ladder: what each proves, its kernel, and the right results by NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
ITEMS, GROUP = 64, 16  # of every step's kernel
KERNEL = "ladder_step"  # its name; `step` is a built-in function
_RNG = np.random.default_rng(1)
_ENDS = [-(2**31), 2**31 - 1, -1, 0, 1, 2**16, -(2**16), 255]
INTS = np.array([*_ENDS, *_RNG.integers(-(2**31), 2**31, ITEMS - len(_ENDS))], np.int32)
OTHERS = np.array([*_ENDS[::-1], *_RNG.integers(-(2**31), 2**31, ITEMS - len(_ENDS))], np.int32)
MODEST = INTS >> 6  # whose sums and products by small numbers do not overflow
SMALL = np.array(_RNG.integers(-128, 128, ITEMS), np.int8)
FLOATS = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.0, *_RNG.normal(0, 99, ITEMS - 6)], np.float32)
_I = np.arange(ITEMS, dtype=np.int32)
_TYPES = {"int8": "char", "uint8": "uchar", "int16": "short", "uint16": "ushort",
          "int32": "int", "uint32": "uint", "float32": "float"}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class LadderStep:
    """One step; the kernel has ITEMS work-items in groups of GROUP, `i` is the global id."""

    name: str  # what works if it passes
    body: str  # OpenCL C; "": no kernel runs
    inputs: Sequence[Array]  # a, b
    expected: Array  # out
    helpers: str = ""  # before the kernel
    relative: float = 0.0  # allowed error of floats, as OpenCL does
    is_avoided: bool = False  # our kernels do without, as released drivers fail

    @property
    def source(self) -> str:
        """The kernel file."""
        names, at, lines = "ab", 0, []
        for name, values in zip(names, self.inputs, strict=False):
            kind = _TYPES[values.dtype.name]
            lines.append(f"  global const {kind} *{name} = (global const {kind} *)(arena + {at});")
            at += padded(values)
        kind = _TYPES[self.expected.dtype.name]
        lines.append(f"  global {kind} *out = (global {kind} *)(arena + {at});")
        return (
            "#pragma OPENCL FP_CONTRACT OFF\n"
            f"{self.helpers}"
            f"kernel void {KERNEL}(global uchar *arena, global const uchar *constants,\n"
            "    global const int *params, int first) {\n"
            + "\n".join(lines)
            + f"\n  int i = get_global_id(0);\n  {self.body}\n}}\n"
        )


def padded(values: Array) -> int:
    """Return the bytes of an array in the arena."""
    return -(-values.nbytes // 64) * 64


def _map(
    name: str, expression: str, of: Callable[..., Any], *inputs: Array, relative: float = 0.0,
    dtype: str | None = None,
) -> LadderStep:  # fmt: skip
    """Return a step of one function of elements."""
    with np.errstate(all="ignore"):
        expected = np.asarray(of(*inputs)).astype(dtype or inputs[0].dtype)
    return LadderStep(name, f"out[i] = {expression};", inputs, expected, relative=relative)


def _wide(of: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of 64-bit copies."""
    return lambda *arrays: of(*(each.astype(np.int64) for each in arrays))


def _divide(a: Array, b: Array) -> Array:
    return np.asarray(np.trunc(a / b))


def _first() -> list[LadderStep]:
    reversed_in_group = INTS.reshape(-1, GROUP)[:, ::-1].reshape(-1)
    sums = np.repeat(MODEST.reshape(-1, GROUP).sum(1, dtype=np.int32), GROUP)
    numbers = _I // GROUP * 10000 + _I % GROUP * 100 + GROUP
    barrier = "barrier(CLK_LOCAL_MEM_FENCE);"
    local = "int l = get_local_id(0); local int kept[16]; kept[l] = a[i];"
    return [
        LadderStep("a buffer is written and read", "", (), INTS),
        LadderStep("a kernel is built and writes a constant", "out[i] = 42;", (), 0 * _I + 42),
        LadderStep("global ids", "out[i] = i;", (), _I),
        LadderStep("a kernel reads a buffer", "out[i] = a[i];", (INTS,), INTS),
        LadderStep("arguments: an int, and a buffer of ints",
                   "out[i] = first + params[0];", (), 0 * _I + 2),
        LadderStep(
            "group ids, local ids and sizes",
            "out[i] = get_group_id(0) * 10000 + get_local_id(0) * 100 + get_local_size(0);",
            (), numbers),
        LadderStep("local memory and a barrier",
                   f"{local} {barrier} out[i] = kept[15 - l];", (INTS,), reversed_in_group),
        LadderStep(
            "barriers in a loop",
            f"{local} for (int s = 8; s > 0; s /= 2) {{ {barrier} "
            f"if (l < s) kept[l] += kept[l + s]; }} {barrier} out[i] = kept[0];", (MODEST,), sums),
        LadderStep(
            "a function with local memory as an argument",
            f"{local} {barrier} out[i] = other(kept, l);", (INTS,), reversed_in_group,
            "static int other(local int *kept, int l) { return kept[15 - l]; }\n"),
    ]  # fmt: skip


def _integers() -> list[LadderStep]:
    shifts = np.asarray(OTHERS & 31, np.int32)
    divisors = np.where((SMALL == 0) | (SMALL == -1), 7, SMALL).astype(np.int32)
    unsigned = SMALL.view(np.uint8)
    return [
        _map("signed bytes", "a[i] + 1", lambda a: a.astype(int) + 1, SMALL, dtype="int32"),
        _map("unsigned bytes", "a[i] + 1", lambda a: a.astype(int) + 1, unsigned, dtype="int32"),
        _map("stores of bytes, side by side", "(uchar)a[i]", lambda a: a, INTS, dtype="uint8"),
        _map("16-bit integers", "(short)a[i]", lambda a: a, INTS, dtype="int16"),
        _map("uint: + - * wrap around",
             "(int)(((uint)a[i] + (uint)b[i]) * ((uint)a[i] - (uint)b[i]))",
             _wide(lambda a, b: (a + b) * (a - b)), INTS, OTHERS),
        _map("int: / towards zero", "a[i] / b[i]", _divide, INTS, divisors),
        _map("int: % with the dividend's sign", "a[i] % b[i]", np.fmod, INTS, divisors),
        _map("shifts, arithmetic and logical", "(a[i] >> b[i]) ^ (int)((uint)a[i] >> b[i])",
             lambda a, b: (a >> b) ^ (a.view(np.uint32) >> b.view(np.uint32)).view(np.int32),
             INTS, shifts),
        _map("comparisons and choices", "a[i] < b[i] ? a[i] : ~b[i]",
             lambda a, b: np.where(a < b, a, ~b), INTS, OTHERS),
        _map("min, max, clamp", "min(max(a[i], b[i]), clamp(a[i], -5, 100))",
             lambda a, b: np.minimum(np.maximum(a, b), np.clip(a, -5, 100)), INTS, OTHERS),
        _map("mul_hi", "mul_hi(a[i], b[i])", _wide(lambda a, b: (a * b) >> 32), INTS, OTHERS),
        _map("mul24, mad24", "mad24(a[i], 300, mul24(a[i], 7))",
             lambda a: a.astype(int) * 307, SMALL, dtype="int32"),
        _map("abs, clz", "(int)abs(a[i]) + (int)clz(a[i])",
             lambda a: abs(a.astype(np.int64)) + [32 - int(v).bit_length() for v in
                                                  a.view(np.uint32)], INTS),
    ]  # fmt: skip


def _control() -> list[LadderStep]:
    loops = "uint s = 0; for (int k = 0; k < {0}; k++) s += (uint)(a[i] ^ k); out[i] = (int)s;"

    def summed(count: int) -> Array:
        rounds = np.arange(count, dtype=np.int64)
        return np.array([(int(v) ^ rounds).sum() for v in INTS]).astype(np.int32)

    long_body = " ".join(f"x = x * {3 + 2 * k}u + (uint)b[(i + {k}) % 64];" for k in range(400))
    x = INTS.astype(np.int64)
    for k in range(400):
        x = (x * (3 + 2 * k) + np.roll(OTHERS, -k)).astype(np.int32).astype(np.int64)
    return [
        LadderStep("a loop", loops.format(10), (INTS,), summed(10)),
        LadderStep(
            "a loop with break and continue in some work-items",
            "int s = 0; for (int k = 0; k < 100; k++) { if (k == i) break; if (k & 1) continue; "
            "s += k; } out[i] = s;", (), np.array([sum(range(0, n, 2)) for n in _I], np.int32)),
        LadderStep("a loop of 60000 rounds", loops.format(60000), (INTS,), summed(60000)),
        LadderStep(
            "nested loops, an array in private memory",
            "int t[8]; for (int k = 0; k < 8; k++) t[k] = a[i] * k; int s = 0; "
            "for (int k = 0; k < 8; k++) for (int j = 0; j <= k; j++) s += t[(j + i) % 8]; "
            "out[i] = s;", (SMALL,),
            np.array([sum(int(SMALL[i]) * ((j + i) % 8) for k in range(8) for j in range(k + 1))
                      for i in _I], np.int32)),
        LadderStep("a kernel of 400 statements",
                   f"uint x = (uint)a[i]; {long_body} out[i] = (int)x;",
                   (INTS, OTHERS), x.astype(np.int32)),
    ]  # fmt: skip


def _vectors() -> list[LadderStep]:
    def pieces(width: int) -> LadderStep:
        body = (
            f"if (i < {ITEMS // width}) {{ int{width} v = vload{width}(0, a + i * {width}); "
            f"vstore{width}(v * 3 + (int{width})(i), i, out); }}"
        )
        expected = (MODEST * np.int32(3) + _I // width).astype(np.int32)
        return LadderStep(f"vectors of {width}: vload, vstore", body, (MODEST,), expected)

    saturated = np.clip(INTS, -128, 127).astype(np.int8)
    return [
        *(pieces(width) for width in (2, 4, 8, 16)),
        LadderStep(
            "components, conversion with saturation",
            "if (i < 16) { int4 v = vload4(i, a).wzyx; vstore4(convert_char4_sat(v), i, out); }",
            (INTS,), saturated.reshape(-1, 4)[:, ::-1].reshape(-1)),
        LadderStep(
            "vectors at any address",
            "if (i < 15) vstore4(vload4(0, a + 4 * i + 1), 0, out + 4 * i + 3); "
            "if (i < 3) out[i] = 0; if (i == 63) out[i] = 0;",
            (SMALL,), np.array([0, 0, 0, *SMALL[1:61], 0], np.int8)),
    ]  # fmt: skip


def _floats() -> list[LadderStep]:
    def rounded(of: Callable[..., Any]) -> Callable[..., Any]:
        return lambda a: of(a.astype(np.float64))

    return [
        _map("float: +, -, * round to nearest", "(a[i] + 0.1f) * a[i] - 3.0f",
             lambda a: (a + np.float32(0.1)) * a - np.float32(3), FLOATS),
        _map("floor, ceil, rint", "floor(a[i]) + 4 * ceil(a[i]) + 16 * rint(a[i])",
             rounded(lambda a: np.floor(a) + 4 * np.ceil(a) + 16 * np.rint(a)), FLOATS),
        _map("round: halves away from zero", "round(a[i])",
             rounded(lambda a: np.copysign(np.floor(abs(a) + 0.5), a)), FLOATS),
        _map("fabs, fmin, fmax, copysign", "copysign(fmax(fabs(a[i]), 2.0f), -fmin(a[i], 1.0f))",
             lambda a: np.copysign(np.maximum(abs(a), np.float32(2)), -np.minimum(a, 1)), FLOATS),
        _map("as_int, conversion to int", "as_int(a[i]) ^ convert_int_rte(a[i])",
             lambda a: a.view(np.int32) ^ np.rint(a).astype(np.int32), FLOATS, dtype="int32"),
        _map("division", "a[i] / 3.0f", lambda a: a / np.float32(3), FLOATS, relative=3e-7),
        _map("sqrt", "sqrt(fabs(a[i]))", lambda a: np.sqrt(abs(a)), FLOATS, relative=4e-7),
        LadderStep("fma", "out[i] = fma(a[i], a[i], 1.0f);", (FLOATS,),
                   (FLOATS.astype(np.float64) ** 2 + 1).astype(np.float32), is_avoided=True),
        LadderStep("halves in memory: vload_half, vstore_half",
                   "vstore_half(a[i], i, (global half *)out);", (FLOATS,),
                   FLOATS.astype(np.float16).view(np.uint16)),
    ]  # fmt: skip


def _atomics() -> list[LadderStep]:
    return [
        LadderStep(
            "atomics in local memory",
            "local int n; if (get_local_id(0) == 0) n = 0; barrier(CLK_LOCAL_MEM_FENCE); "
            "atomic_add(&n, a[i]); barrier(CLK_LOCAL_MEM_FENCE); out[i] = n;", (MODEST,),
            np.repeat(MODEST.reshape(-1, GROUP).sum(1, dtype=np.int32), GROUP)),
    ]  # fmt: skip


def _unused_features() -> list[LadderStep]:
    rounds = np.arange(70000, dtype=np.int64)
    sums = np.array([(int(v) ^ rounds).sum() for v in INTS]).astype(np.int32)
    swap = (
        "static int swap(local int *kept, int x, int l) "
        "{ kept[l] = x; barrier(CLK_LOCAL_MEM_FENCE); return kept[15 - l]; }\n"
    )
    long_body = " ".join(f"y = y * {3 + 2 * k}u ^ (y >> {1 + k % 7});" for k in range(20))
    large = (
        f"static int large(local int *kept, int x, int l) {{ uint y = (uint)x; {long_body} "
        "return swap(kept, (int)y, l); }\n"
    )
    y = INTS.view(np.uint32)
    for k in range(20):
        y = y * np.uint32(3 + 2 * k) ^ (y >> np.uint32(1 + k % 7))
    return [
        # llvmpipe of Mesa 22.3 leaves after 65535.
        LadderStep("a loop of 70000 rounds", "uint s = 0; "
                   "for (int k = 0; k < 70000; k++) s += (uint)(a[i] ^ k); out[i] = (int)s;",
                   (INTS,), sums, is_avoided=True),
        # llvmpipe of Mesa 25.0 and 26.2 dies.
        LadderStep("a barrier in a callee of a large function",
                   "local int kept[16]; out[i] = large(kept, a[i], get_local_id(0));", (INTS,),
                   y.view(np.int32).reshape(-1, GROUP)[:, ::-1].reshape(-1), swap + large,
                   is_avoided=True),
        # llvmpipe of Mesa 22.3 and 25.0 dies, as does freedreno of 25.0.
        LadderStep("a choice between a byte and a constant",
                   "out[i] = a[i] > 3 ? a[i] : (char)5;", (SMALL,),
                   np.where(SMALL > 3, SMALL, np.int8(5)), is_avoided=True),
    ]  # fmt: skip


def ladder() -> list[LadderStep]:
    """Return all steps, the simplest first; those that our kernels avoid are the last."""
    sure = [*_first(), *_integers(), *_control(), *_vectors(), *_floats(), *_atomics()]
    return [*sure, *_unused_features()]
