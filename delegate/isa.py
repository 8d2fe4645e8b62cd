# SPDX-License-Identifier: Apache-2.0
"""What a device may do beyond OpenCL C 1.2, one row each: who tries it, and what proves it.

A row's name is in Target.isa where the device's self-test of it passed.
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
PARAMS_ARGUMENT = "params_argument"  # a launch's block of params as its kernel's argument
OWN_BUILTINS = "own_builtins"
STORED_HALVES = "stored_halves"  # vload_half and vstore_half, which OpenCL C 1.2 has
FP16 = "fp16"  # arithmetic of halves: cl_khr_fp16
AMX = "amx"  # each process has to be given the tile registers, see guard/children/process.py
_EACH_HAS = {"x86_64": "sse2", "i686": "sse2", "aarch64": "asimd"}  # flags of all that can be
ORDER_X86, ORDER_ARM, ORDER_PTX = "order_x86", "order_arm", "order_ptx"


@dataclass(frozen=True, slots=True)
class Feature:
    """An instruction, a memory order or an extension."""

    name: str
    device_types: tuple[str, ...]  # of the devices that try it; none: only tests use it
    group_items: int  # of its self-test
    # What the compiler must offer: ASSEMBLY, INTEGER_DOT_PRODUCT, FP16, or "": OpenCL C 1.2.
    needs: str = ""
    test: str = ""  # whose self-test in runtime_isa.cl is its own, too; "": its name's
    # The self-test is not needed where one of these passed.
    proven_by: frozenset[str] = frozenset()
    # Of a dot product: the macro of dot.clh, and whether both sides are signed bytes.
    macro: str = ""
    takes_int8: bool = False
    # Whether the device must say, too, that it is accelerated: compilers write it out elsewhere.
    is_asked: bool = False
    # The processors that may have it, as platform.machine() names them; none: any.
    processors: frozenset[str] = frozenset()
    flags: tuple[str, ...] = ()  # what Linux calls it in /proc/cpuinfo: any of these

    @property
    def kernel(self) -> str:
        """Its self-test, in runtime_isa.cl."""
        return f"runtime_isa_{self.test or self.name}"

    @property
    def is_order(self) -> bool:
        """Whether it is a memory order between work-groups, for the persistent launch."""
        return "order" in (self.test, self.name)


# What dot products have in common after their names.
_DOT = (_NOT_CPU, 32, INTEGER_DOT_PRODUCT, "dot")

# In the order of the self-tests. The persistent launch uses one of the orders.
FEATURES = (
    # The first: what is tested after it is compiled faster.
    Feature(OWN_BUILTINS, _CPU, 1),
    Feature("avx2", _CPU, 1, ASSEMBLY, processors=_X86, flags=("avx2",)),
    Feature("vnni", _CPU, 1, ASSEMBLY, processors=_X86, flags=("avx512_vnni", "avx_vnni")),
    Feature(AMX, _CPU, 1, ASSEMBLY, processors=_X86, flags=("amx_int8",)),
    Feature("dotprod", _CPU, 1, ASSEMBLY, processors=_ARM, flags=("asimddp",)),
    Feature("i8mm", _CPU, 1, ASSEMBLY, processors=_ARM, flags=("i8mm",)),
    Feature(ORDER_X86, _CPU, 1, ASSEMBLY, test="order", processors=_X86),
    Feature(ORDER_ARM, _CPU, 1, ASSEMBLY, test="order", processors=_ARM),
    Feature("dp4a", _NOT_CPU, 32, ASSEMBLY),
    Feature("mma", _NOT_CPU, 32, ASSEMBLY),
    Feature(ORDER_PTX, _NOT_CPU, 1, ASSEMBLY, test="order"),
    Feature("dot", *_DOT, macro="DOT_KHR", takes_int8=True, is_asked=True),
    Feature("mixed_dot", *_DOT, macro="DOT_KHR_MIXED", is_asked=True),
    Feature("arm_dot", *_DOT, macro="DOT_ARM", takes_int8=True),
    Feature("qcom_dot", *_DOT, macro="DOT_QCOM"),
    Feature("emulated_dot", (), 32, test="dot", macro="DOT_EMULATED", takes_int8=True),
    Feature("emulated_mixed_dot", (), 32, test="dot", macro="DOT_EMULATED"),
    Feature("nearest", _ANY, 32),
    Feature(PARAMS_ARGUMENT, _ANY, 32),
    # Not on CPUs: llvmpipe orders too little, and passes often all the same.
    Feature("order", _NOT_CPU, 1, proven_by=frozenset({ORDER_PTX})),
    Feature(STORED_HALVES, _ANY, 32),
    Feature(FP16, _ANY, 32, FP16),
    Feature(LANES16, _CPU, 1),  # the last: its self-test limits the process
)
BY_NAME = {feature.name: feature for feature in FEATURES}
DOTS = tuple(feature for feature in FEATURES if feature.macro)  # the best first
ORDERS = frozenset(feature.name for feature in FEATURES if feature.is_order)


def tried_on(device_type: str) -> list[str]:
    """Return the names of what devices of a type try on this machine."""
    processor = platform.machine()
    return [
        feature.name
        for feature in FEATURES
        if device_type in feature.device_types
        and (not feature.processors or processor in feature.processors)
    ]


def lacked_by(flags: Collection[str]) -> frozenset[str]:
    """Return the names of what a processor with such flags has not.

    A flag proves nothing. But a self-test without its flag ends two children, and a third one must
    show that a plain kernel still works.
    """
    if _EACH_HAS.get(platform.machine(), "") not in flags:  # an emulator may show its host's
        return frozenset()
    return frozenset(f.name for f in FEATURES if f.flags and not {*f.flags} & {*flags})


def instructions(device_type: str) -> list[str]:
    """Return the names of the instructions that kernels of such devices have, on any machine."""
    return [
        feature.name
        for feature in FEATURES
        if device_type in feature.device_types
        and feature.needs == ASSEMBLY
        and not feature.is_order
    ]


def portable_on(device_type: str) -> list[str]:
    """Return the names of what these devices try that OpenCL C 1.2 alone can express."""
    extra = (LANES16, OWN_BUILTINS, STORED_HALVES)
    return [name for name in tried_on(device_type) if not BY_NAME[name].needs and name not in extra]


def most_lanes(proven: Collection[str]) -> int:
    """Return how wide a device's vectors may be in kernels.

    16 lanes only where a self-test showed that the compiler builds them.
    """
    return 16 if LANES16 in proven else 8


def that_need(what: str) -> frozenset[str]:
    """Return the names of what needs this of the compiler."""
    return frozenset(feature.name for feature in FEATURES if feature.needs == what)


def is_one_launch_likely(proven: Collection[str], is_float: bool) -> bool:
    """Whether launches are expected to be the fastest as one; `is_float`: some input has floats.

    CPUs whose threads can wait for each other are taken to be faster so until it is measured, and
    NVIDIA's GPUs where numbers are of 8 bits: see benchmarks/first_starts.py.
    """
    likely = {ORDER_X86, ORDER_ARM} | (set() if is_float else {ORDER_PTX})
    return not likely.isdisjoint(proven)
