# SPDX-License-Identifier: Apache-2.0
"""Table of device features beyond OpenCL C 1.2: which devices try them, and their self-tests.

A feature's name is in Target.isa if the device passed its self-test.
"""

from __future__ import annotations

import platform
from collections.abc import Collection
from dataclasses import dataclass

_CPU = ("cpu",)
_NOT_CPU = ("gpu", "accelerator", "custom")
_ANY = (*_NOT_CPU, *_CPU)
_X86, _ARM = frozenset({"x86_64", "i686"}), frozenset({"aarch64"})
ASSEMBLY, INTEGER_DOT_PRODUCT = "assembly", "integer_dot_product"
LANES16 = "lanes16"
PARAMS_ARGUMENT = "params_argument"  # a launch's parameter block as a kernel argument
OWN_BUILTINS = "own_builtins"
FP16_STORAGE = "stored_halves"  # vload_half and vstore_half, which are in OpenCL C 1.2
FP16 = "fp16"  # fp16 arithmetic: cl_khr_fp16
# What precision "ieee" needs: sums and products of floats, each rounded to the nearest and never
# joined; denormal floats kept; quotients and roots rounded to the nearest.
IEEE, DENORMALS, DIVISION = "ieee", "denormals", "division"
_EACH_HAS = {"x86_64": "sse2", "i686": "sse2", "aarch64": "asimd"}  # flags that all CPUs have
ORDER_X86, ORDER_ARM, ORDER_PTX = "order_x86", "order_arm", "order_ptx"


@dataclass(frozen=True, slots=True)
class Feature:
    """An instruction, a memory order or an extension."""

    name: str
    device_types: tuple[str, ...]  # of the devices that try it; empty: only in tests
    group_items: int  # of its self-test
    # What the compiler must support: ASSEMBLY, INTEGER_DOT_PRODUCT, FP16, or "": OpenCL C 1.2.
    needs: str = ""
    test: str = ""  # the feature whose self-test it shares, in runtime_isa.cl; "": its own
    # The self-test is skipped if one of these passed.
    proven_by: frozenset[str] = frozenset()
    # For a dot product: the macro of dot.clh, and whether both sides are signed bytes.
    macro: str = ""
    takes_int8: bool = False
    # Whether the device must also report it as accelerated: compilers may emulate it.
    must_be_accelerated: bool = False
    # The processors that may have it, as named by platform.machine(); empty: any.
    processors: frozenset[str] = frozenset()
    flags: tuple[str, ...] = ()  # names in Linux's /proc/cpuinfo: any of these
    # Whether each process must ask Linux for x86's tile registers: see guard/children/process.py.
    uses_tile_registers: bool = False
    is_of_ieee: bool = False  # tested only for precision "ieee"
    lookup_bytes: int = 0  # vector size of its kernel in lookup.cl; 0: it has none there

    @property
    def kernel(self) -> str:
        """Name of its self-test kernel in runtime_isa.cl."""
        return f"runtime_isa_{self.test or self.name}"

    @property
    def is_order(self) -> bool:
        """Whether it is a memory order between work-groups, for persistent kernels."""
        return "order" in (self.test, self.name)


# Common fields: of a CPU's instructions, and of dot products.
_OF_CPU = (_CPU, 1, ASSEMBLY)
_DOT = (_NOT_CPU, 32, INTEGER_DOT_PRODUCT, "dot")

# In the order of the self-tests. Persistent kernels use one of the orders.
FEATURES = (
    # First, as it speeds up the compilation of later tests.
    Feature(OWN_BUILTINS, _CPU, 1),
    Feature("avx2", *_OF_CPU, processors=_X86, flags=("avx2",), lookup_bytes=32),
    Feature("vnni", *_OF_CPU, processors=_X86, flags=("avx512_vnni", "avx_vnni"), lookup_bytes=64),
    Feature("amx", *_OF_CPU, processors=_X86, flags=("amx_int8",), uses_tile_registers=True),
    Feature("dotprod", *_OF_CPU, processors=_ARM, flags=("asimddp",)),
    Feature("i8mm", *_OF_CPU, processors=_ARM, flags=("i8mm",)),
    Feature(ORDER_X86, *_OF_CPU, test="order", processors=_X86),
    Feature(ORDER_ARM, *_OF_CPU, test="order", processors=_ARM),
    Feature("dp4a", _NOT_CPU, 32, ASSEMBLY),
    Feature("mma", _NOT_CPU, 32, ASSEMBLY),
    Feature(ORDER_PTX, _NOT_CPU, 1, ASSEMBLY, test="order"),
    Feature("dot", *_DOT, macro="DOT_KHR", takes_int8=True, must_be_accelerated=True),
    Feature("mixed_dot", *_DOT, macro="DOT_KHR_MIXED", must_be_accelerated=True),
    Feature("arm_dot", *_DOT, macro="DOT_ARM", takes_int8=True),
    Feature("qcom_dot", *_DOT, macro="DOT_QCOM"),
    Feature("emulated_dot", (), 32, test="dot", macro="DOT_EMULATED", takes_int8=True),
    Feature("emulated_mixed_dot", (), 32, test="dot", macro="DOT_EMULATED"),
    Feature("nearest", _ANY, 32),
    Feature(PARAMS_ARGUMENT, _ANY, 32),
    # Not on CPUs: llvmpipe's order is too weak, but often passes the test.
    Feature("order", _NOT_CPU, 1, proven_by=frozenset({ORDER_PTX})),
    Feature(FP16_STORAGE, _ANY, 32),
    Feature(FP16, _ANY, 32, FP16),
    Feature(IEEE, _ANY, 32, is_of_ieee=True),
    Feature(DENORMALS, _ANY, 32, is_of_ieee=True),
    Feature(DIVISION, _ANY, 32, is_of_ieee=True),
    Feature(LANES16, _CPU, 1),  # last: its self-test limits the process
)
BY_NAME = {feature.name: feature for feature in FEATURES}
DOTS = tuple(feature for feature in FEATURES if feature.macro)  # the best first
ORDERS = frozenset(feature.name for feature in FEATURES if feature.is_order)
TILE_REGISTERS = frozenset(feature.name for feature in FEATURES if feature.uses_tile_registers)
_WITH_LOOKUP = (feature for feature in FEATURES if feature.lookup_bytes)
LOOKUPS = tuple(sorted(_WITH_LOOKUP, key=lambda f: -f.lookup_bytes))  # the widest vectors first


def tried_on(device_type: str, is_ieee: bool = False) -> list[str]:
    """Return the features that devices of a type try on this machine.

    `is_ieee`: those of precision "ieee", too.
    """
    processor = platform.machine()
    return [
        feature.name
        for feature in FEATURES
        if device_type in feature.device_types
        and (not feature.processors or processor in feature.processors)
        and (is_ieee or not feature.is_of_ieee)
    ]


def lacked_by(flags: Collection[str]) -> frozenset[str]:
    """Return the features that a processor with these flags lacks.

    A flag proves nothing. But a self-test without its flag kills two children, and a third one
    must show that a fallback kernel still works.
    """
    if _EACH_HAS.get(platform.machine(), "") not in flags:  # an emulator may show its host's
        return frozenset()
    return frozenset(f.name for f in FEATURES if f.flags and not {*f.flags} & {*flags})


def instructions(device_type: str) -> list[str]:
    """Return the instruction sets that kernels for such devices use, on any machine."""
    return [
        feature.name
        for feature in FEATURES
        if device_type in feature.device_types
        and feature.needs == ASSEMBLY
        and not feature.is_order
    ]


def portable_on(device_type: str) -> list[str]:
    """Return the features these devices try that need only OpenCL C 1.2."""
    extra = (LANES16, OWN_BUILTINS, FP16_STORAGE)
    return [name for name in tried_on(device_type) if not BY_NAME[name].needs and name not in extra]


def most_lanes(proven: Collection[str]) -> int:
    """Return the maximum vector width of kernels.

    16 lanes only if a self-test showed that the compiler handles them.
    """
    return 16 if LANES16 in proven else 8


def that_need(what: str) -> frozenset[str]:
    """Return the features that need this of the compiler."""
    return frozenset(feature.name for feature in FEATURES if feature.needs == what)


def is_one_launch_likely(proven: Collection[str], is_float: bool) -> bool:
    """Whether one launch is expected to be fastest; `is_float`: some input is float.

    Assumed until measured for CPUs whose threads can wait for each other, and for NVIDIA's GPUs
    with 8-bit models: see benchmarks/first_starts.py.
    """
    likely = {ORDER_X86, ORDER_ARM} | (set() if is_float else {ORDER_PTX})
    return not likely.isdisjoint(proven)
