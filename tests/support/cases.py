# SPDX-License-Identifier: Apache-2.0
"""What op tests share: the strategies of an op, a count of cases, drawn parameters.

A strategy is forced by wrapping `ops.lower`, so that a device runs what another one would be given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import reject
from hypothesis import strategies as st
from numpy.typing import NDArray

from delegate import DeviceInfo, ops
from delegate.errors import Unsupported
from delegate.guard.probing.opening import usable_isa
from delegate.guard.probing.probe import examine
from delegate.host.tflite.library import installed_rules
from delegate.inspect import Node, Quantization, read_model
from delegate.isa import instructions
from delegate.launch import Alternative, Launch
from delegate.target import Target
from tests.support.compare import assert_exact, inputs_for, interpreter, invoke, oracle
from tests.support.model import t
from tests.support.opencl import vector_width

RUN: Counter[str] = Counter()  # op -> cases compared with TFLite, printed at the end of the run

FUSED = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")


@dataclass(frozen=True, slots=True)
class Strategy:
    """What lowering is told of the device, and which of its alternatives is taken."""

    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)  # of Target
    alternative: str = ""  # its name or that name's first word; "" takes the first
    is_emulated: bool = False  # its instructions by the stand-ins of kernels/ptx.clh or neon.clh

    def __str__(self) -> str:
        return self.name

    @property
    def target(self) -> Target:
        """A target with these facts, for calling lower() without a device."""
        return replace(Target(), **self.facts)

    @property
    def lanes(self) -> int:
        """The width of the vectors it is told of; 1: none."""
        return int(self.facts.get("vector_width", 1))

    @property
    def isa(self) -> frozenset[str]:
        """The instructions a device must have for this strategy."""
        return frozenset() if self.is_emulated else frozenset(self.facts.get("isa", ())) - ANYWHERE


# Of a device of which nothing was proven or asked.
NO_FACTS: dict[str, Any] = {"isa": frozenset(), "registers": 0}

PLAIN = Strategy("plain", {"device_type": "gpu"}, "plain")
SIMT = Strategy("simt", {"device_type": "gpu", "vector_width": 1})  # 64 work-items a group
# One core, so that a work-group gets several items of even a small layer.
LANES_2, LANES_4, LANES_8, LANES_16 = (
    Strategy(f"lanes{lanes}", {"device_type": "cpu", "vector_width": lanes, "compute_units": 1})
    for lanes in (2, 4, 8, 16)
)
STRATEGIES = (PLAIN, SIMT, LANES_4, LANES_8, LANES_16)
GROUPS = (SIMT, LANES_8)  # for ops that only know groups of 64 work-items and of one
VNNI, AVX2, AMX = (
    Strategy(
        isa,
        {
            "device_type": "cpu",
            "vector_width": 8,
            "compute_units": 1,
            "isa": frozenset({isa, "vnni"} if isa == "amx" else {isa}),
        },
    )
    for isa in ("vnni", "avx2", "amx")
)
X86 = (VNNI, AVX2)  # for ops with kernels of their own for these; skipped where not proven
# With NVIDIA's instructions, skipped where not proven, and with stand-ins for them.
NVIDIA = NATIVE, EMULATED = tuple(
    Strategy(
        name,
        {"device_type": "gpu", "compute_units": 132, "isa": frozenset(instructions("gpu"))},
        is_emulated=name == "emulated",
    )
    for name in ("native", "emulated")
)
# With Arm's, skipped where not proven, and with stand-ins for them.
_OF_ARM = {"dotprod": frozenset({"dotprod"}), "i8mm": frozenset({"dotprod", "i8mm"})}
ARM = DOTPROD, I8MM, EMULATED_DOTPROD, EMULATED_I8MM = tuple(
    Strategy(
        f"emulated_{name}" if is_emulated else name,
        {"device_type": "cpu", "vector_width": 1, "compute_units": 1, "isa": isa},
        name,
        is_emulated=is_emulated,
    )
    for is_emulated in (False, True)
    for name, isa in _OF_ARM.items()
)
# The same where few channels leave a node to other kernels.
ARM_OR_OTHER = tuple(replace(strategy, alternative="") for strategy in ARM)
_ARM_STAND_INS = {strategy.name for strategy in ARM if strategy.is_emulated}
# Four terms of a sum in a word; NEAREST scales results as floats, where they are rounded so.
FLOAT4 = Strategy("float4", {"device_type": "gpu"}, "float4")
NEAREST = Strategy("nearest", {"device_type": "gpu", "isa": frozenset({"nearest"})}, "float4")
# How large blocks are, by how many values a work-item keeps in registers.
FEW_REGISTERS, SOME_REGISTERS, MANY_REGISTERS = (
    Strategy(f"registers{count}", {"device_type": "gpu", "registers": count})
    for count in (24, 48, 96)
)
REGISTERS = (FEW_REGISTERS, SOME_REGISTERS, MANY_REGISTERS)
STAGED = Strategy("staged", {"device_type": "cpu", "vector_width": 1, "compute_units": 2}, "staged")
DOTS = tuple(
    Strategy(isa, {"device_type": "gpu", "isa": frozenset({isa})}, isa)
    for isa in ("emulated_dot", "emulated_mixed_dot")
)
EVERY_STRATEGY = (
    *STRATEGIES,
    LANES_2,
    *X86,
    AMX,
    *ARM,
    *NVIDIA,
    FLOAT4,
    *REGISTERS,
    NEAREST,
    STAGED,
    *DOTS,
)
# Needs no proof: what kernels/dot.clh computes itself, and roundings that wrong numbers would show.
ANYWHERE = frozenset({"nearest", "emulated_dot", "emulated_mixed_dot"})


def require_isa(strategy: Strategy, device: DeviceInfo) -> None:
    """Skip the test unless this device has proven what a strategy needs; see `has_isa`."""
    if missing := _missing(strategy, device):
        pytest.skip(missing)


def has_isa(strategy: Strategy, device: DeviceInfo) -> bool:
    """Whether the device has proven what a strategy needs, and its compiler does not lose it."""
    return not _missing(strategy, device)


def _missing(strategy: Strategy, device: DeviceInfo) -> str:
    """Return why a strategy cannot run on a device; "" if it can."""
    if strategy.name in _ARM_STAND_INS and "Portable Computing Language" not in device.platform:
        return f"{device.name} has address spaces"
    missing = strategy.isa - _proven(device)
    if missing:
        return f"{device.name} has not proven {', '.join(sorted(missing))}"
    if strategy.lanes > 8 and "lanes16" not in _proven(device):
        return f"the compiler of {device.name} loses kernels with vectors of {strategy.lanes}"
    return ""


@cache
def _proven(device: DeviceInfo) -> frozenset[str]:
    return usable_isa(examine(device).isa)


def strategy_on(device: DeviceInfo, strategy: Strategy) -> Strategy:
    """Return the strategy of a drawn case or type on this device, if a test allows any.

    A device without vectors is never given those of a CPU: there they have the exact cases alone,
    and these tests run SIMT instead.
    """
    is_cpu_vector = strategy.lanes > 1 and not strategy.isa
    return SIMT if is_cpu_vector and vector_width(device) <= 1 else strategy


@contextmanager
def forced(strategy: Strategy) -> Iterator[list[str]]:
    """Make every node use this strategy; yields the names of the alternatives taken so far.

    A node without such an alternative stays on the CPU, which `assert_exact` does not let pass.
    """
    lower = ops.lower
    taken: list[str] = []

    def only(node: Node, target: Target) -> tuple[Alternative, ...]:
        # A strategy without instructions runs without those that the device has.
        found = lower(node, replace(target, **{**NO_FACTS, **strategy.facts}))
        wanted = strategy.alternative if found[0].launches else ""  # a view has no other
        chosen = [a for a in found if wanted in ("", a.name, a.name.split()[0])][:1]
        if strategy.is_emulated:
            chosen = [emulated(alternative) for alternative in chosen]
        taken.extend(alternative.name for alternative in chosen)
        return tuple(chosen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "lower", only)
        yield taken


def emulated(alternative: Alternative) -> Alternative:
    """Return the same with instructions computed; those of kernels/ptx.clh need local memory."""

    def of(launch: Launch) -> Launch:
        if _OF_ARM.keys() & set(launch.kernel.split("_")):
            return replace(launch, defines={**launch.defines, "EMULATE_NEON": 1})
        if not {*instructions("gpu")} & set(launch.kernel.split("_")):
            return launch
        own = int(launch.defines.get("SCRATCH_INTS", 0))
        room = 6 * launch.group_items  # what kernels/ptx.clh needs
        defines = {"EMULATE_PTX": own, "SCRATCH_INTS": own + room}
        return replace(launch, defines={**launch.defines, **defines})

    return replace(alternative, launches=tuple(map(of, alternative.launches)))


def assert_exact_strategy(
    model: bytes, device: DeviceInfo, strategy: Strategy = SIMT, seed: int = 0, **options: Any
) -> set[str]:
    """Assert as `assert_exact`, each node with this strategy; return the alternatives' names."""
    require_isa(strategy, device)
    if not _is_known(model):
        pytest.skip("tflite-runtime does not run it")
    with forced(strategy) as taken:
        graph = assert_exact(model, device, seed, **options)
    RUN.update(node.op for node in graph.nodes)
    return set(taken)


def _is_known(model: bytes) -> bool:
    """Whether TFLite itself runs a model: the older runtime lacks ops and types that tests have."""
    if installed_rules().runtime != "tflite-runtime":
        return True
    try:
        made = interpreter(model, cpu_kernels=oracle(model))
        invoke(made, inputs_for(read_model(model))[-1])
    except (RuntimeError, ValueError):
        return False
    return True


def assert_exact_or_refused(
    model: bytes, device: DeviceInfo, strategy: Strategy, seed: int, **options: Any
) -> None:
    """The same for a drawn model, by `strategy_on`: one that TFLite does not take is no case."""
    try:
        cpu_kernels = oracle(model)
    except (RuntimeError, ValueError):
        reject()
    if not _is_known(model):
        reject()
    assert_exact_strategy(
        model,
        device,
        strategy_on(device, strategy),
        seed,
        **{"cpu_kernels": cpu_kernels, **options},
    )


def refusal(node: Node, target: Target = SIMT.target) -> str:
    """Return why a node does not lower."""
    with pytest.raises(Unsupported) as caught:
        ops.lower(node, target)
    return str(caught.value)


def changed(
    node: Node, position: int | None = None, options: dict[str, Any] | None = None, **fields: Any
) -> Node:
    """Return a node with one input (-1: its output) or its options changed."""
    inputs, outputs = list(node.inputs), list(node.outputs)
    if position == -1:
        outputs[0] = replace(outputs[0], **fields)
    elif position is not None:
        tensor = inputs[position]
        assert tensor is not None
        inputs[position] = replace(tensor, **fields)
    return replace(
        node,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        options=dict(node.options) | (options or {}),
    )


def retyped(node: Node, dtype: str, positions: Sequence[int] = (0, -1)) -> Node:
    """Return a node whose tensors at these positions (-1: its output) have another type."""
    for position in positions:
        node = changed(node, position, dtype=dtype)
    return node


def quantization(scale: Any, zero_point: Any = 0, axis: int = 0) -> Quantization | None:
    """Return a record of these numbers."""
    return t((1,), "int8", scale, zero_point, axis=axis).quantization


def only_launch(alternative: Alternative) -> Launch:
    """Return the one launch of an alternative."""
    (launch,) = alternative.launches
    return launch


def assert_constants(launch: Launch) -> None:
    """A launch's constants are packed to as many bytes as they say."""
    for constant in launch.constants:
        assert constant.pack().nbytes == constant.size_bytes


def integers(shape: Sequence[int], dtype: str, seed: int = 0) -> NDArray[Any]:
    """Return random values over the whole range of an 8-bit type."""
    limits = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    return rng.integers(limits.min, limits.max, tuple(shape), endpoint=True).astype(dtype)


def output_size(size: int, kernel: int, stride: int, dilation: int, padding: str) -> int:
    """Return how many windows fit along one axis; the answer of a VALID one may be below 1."""
    extent = (kernel - 1) * dilation + 1
    return -(-(size if padding == "SAME" else size - extent + 1) // stride)


def zero_points(dtype: str) -> st.SearchStrategy[int]:
    """Draw zero points, the ends of the range most of all."""
    limits = np.iinfo(dtype)
    return st.sampled_from([int(limits.min), int(limits.max)]) | st.integers(
        int(limits.min), int(limits.max)
    )


def multipliers(least: float, most: float) -> st.SearchStrategy[float]:
    """Draw numbers between two powers of 2, small ones as often as large; simple ones give ties."""
    simple = st.sampled_from([1.0, 1 / 3, 0.75, 1.25, 0.1])
    power = st.integers(int(least) + 1, int(most) - 1).map(lambda exponent: 2.0**exponent)
    return st.floats(least, most).map(lambda exponent: 2.0**exponent) | st.builds(
        lambda a, b: a * b, simple, power
    )


def scales(least: float = -8, most: float = 2) -> st.SearchStrategy[float]:
    """Draw scales that a tensor can have: `multipliers` as float32."""
    return multipliers(least, most).map(lambda scale: float(np.float32(scale)))


DTYPES = st.sampled_from(["uint8", "int8"])
DRAWN_STRATEGIES = st.sampled_from(STRATEGIES)
SEEDS = st.integers(0, 2**16)
