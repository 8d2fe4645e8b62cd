# SPDX-License-Identifier: Apache-2.0
"""Every kernel builds without warnings, with each set of macros of its op, on every device."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest

from delegate import DeviceError, DeviceInfo, ops
from delegate.errors import Unsupported
from delegate.guard.probing.probe import examine
from delegate.guard.probing.self_tests import device_launch, schedule_of
from delegate.inspect import KernelBuildError, Node
from delegate.isa import FEATURES, FP16, FP16_STORAGE, INTEGER_DOT_PRODUCT
from delegate.launch import Alternative, Launch
from delegate.plan import sources
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.dispatch.registers import registers_launch
from delegate.plan.dispatch.survey import rate_launch
from delegate.plan.fp16.fp16 import fp16_alternative
from delegate.plan.sources import defines_of, files, source_of
from delegate.run import programs as runtime_programs
from delegate.run.device import Device
from delegate.run.programs import OPTIONS, Programs
from delegate.target import Rules, Target
from tests.support.cases import EVERY_STRATEGY, STRATEGIES, Strategy, emulated, has_isa
from tests.support.nodes import built_nodes, valid_nodes
from tests.support.tiers import slow

# A device need not have these types; the builtin functions' headers are read before our macros.
FORBIDDEN = {
    word: f"forbidden_{word}"
    for scalar in ("long", "ulong", "double", "half")
    for word in (scalar, *(f"{scalar}{lanes}" for lanes in (2, 3, 4, 8, 16)))
} | {
    word: f"forbidden_{word}"
    for word in ("image1d_t", "image2d_t", "image3d_t", "image2d_array_t", "sampler_t", "event_t")
}

# Of an attribute NVIDIA's compiler gives every kernel itself; of vectors wider than the device's in
# the built-in functions' own declarations, which a forced strategy may ask for.
REMARK = re.compile(
    r"Function \w+ is a kernel, so overriding noinline attribute"
    r"|without 'avx512f' enabled changes the ABI|failed to build the program"
)


KERNEL = re.compile(r"^KERNEL\((\w+)\)$", re.MULTILINE)
DEFINED = re.compile(r"^[ \t]*#define[ \t]+(\w+)", re.MULTILINE)
A_SOURCE = 24  # programs in one build


class RecordingTarget(Target):
    """A target that records which of its facts are read."""

    noted: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        if name in Target.__dataclass_fields__:
            RecordingTarget.noted.add(name)
        return super().__getattribute__(name)


def lowered(
    node: Node, asked: Sequence[tuple[Strategy, RecordingTarget, dict[str, Any]]]
) -> Iterator[tuple[tuple[Alternative, ...], list[Strategy]]]:
    """Yield each set of a node's alternatives, and the strategies with which it occurs.

    `asked`: ways, their targets, and those targets' facts.

    Lowering is pure: targets that agree in all facts that it reads have the same alternatives.
    """
    known: list[tuple[dict[str, Any], tuple[Alternative, ...], list[Strategy]]] = []
    for strategy, target, facts in asked:
        for read, _, strategies in known:
            if all(facts[name] == value for name, value in read.items()):
                strategies.append(strategy)
                break
        else:
            RecordingTarget.noted.clear()
            result = _lowered(node, target)
            known.append(
                ({name: facts[name] for name in RecordingTarget.noted}, result, [strategy])
            )
    yield from ((result, strategies) for _, result, strategies in known)


def _lowered(node: Node, target: Target) -> tuple[Alternative, ...]:
    try:
        return ops.lower(node, target)
    except Unsupported:
        # Passes lower a fused node first, and leave the graph unchanged if that is refused.
        if node.op.islower():
            return ()
        raise


# Vectors of eight floats occur only with fp16.
EIGHT_HALVES = Strategy("eight halves", {"device_type": "gpu", "load_lanes": 8})
PLACES = {strategy.name: place for place, strategy in enumerate(EVERY_STRATEGY)}


def in_halves(alternative: Alternative) -> Iterator[tuple[Launch, Strategy]]:
    """Yield an alternative's launches with fp16, if it supports it."""
    types = ("ELEM", "RESULT")
    if {launch.defines.get(of, "float") for launch in alternative.launches for of in types} != {
        "float"
    }:
        return
    for isa in (frozenset({FP16_STORAGE}), frozenset({FP16_STORAGE, FP16})):
        half = fp16_alternative(alternative, {}, FP16 in isa)
        if half is not None:
            yield from ((launch, Strategy("halves", {"isa": isa})) for launch in half.launches)


@cache
def _launches() -> dict[str, tuple[Launch, Strategy]]:
    """Return a launch and a strategy for each set of macros, by a readable name."""
    results = [(device_launch()[0], STRATEGIES[0])]
    for feature in FEATURES:
        # The compiler's dot products; the self-test of orders, which uses assembly elsewhere.
        if feature.needs == INTEGER_DOT_PRODUCT or feature.name.startswith("order_"):
            continue
        strategy = Strategy(feature.name, {"isa": frozenset({feature.name})})
        results.append(
            (schedule_of(feature).launches[0], STRATEGIES[0] if feature.macro else strategy)
        )
    results.append((registers_launch(1), STRATEGIES[0]))
    results += [(rate_launch(family, 1, 1), STRATEGIES[0]) for family in ("float", "quant8")]
    targets = [
        (strategy, RecordingTarget(**{**strategy.facts, "rules": rules}))
        for strategy in (*EVERY_STRATEGY, EIGHT_HALVES)
        for twice in (False, True)
        for rules in [
            Rules(
                fully_connected_double_rounding=twice,
                int16_sums_of_int32=twice,
                rows_in_doubles=twice,
                rows_round_by_adding=not twice,
                norm_products_wrap=twice,
            )
        ]
    ]
    names = Target.__dataclass_fields__
    pairs = [
        (strategy, target, {name: getattr(target, name) for name in names})
        for strategy, target in targets
    ]
    for node in built_nodes():
        for alternatives, strategies in lowered(node, pairs):
            results += launches_of(alternatives, strategies)
    named: dict[str, tuple[Launch, Strategy]] = {}
    for launch, strategy in results:
        chosen_macros = [f"{name}={value}" for name, value in launch.defines.items()]
        name = "-".join([launch.kernel, *chosen_macros]).lower()
        if name not in named or asks_for(strategy) < asks_for(named[name][1]):
            named[name] = launch, strategy
    return named


def launches_of(
    alternatives: Sequence[Alternative], strategies: Sequence[Strategy]
) -> Iterator[tuple[Launch, Strategy]]:
    """Yield the launches of alternatives, each with the strategy to build it with."""
    forced = [strategy for strategy in strategies if strategy is not EIGHT_HALVES]
    for is_emulated in (False, True):
        of_kind = [strategy for strategy in forced if strategy.is_emulated == is_emulated]
        for alternative in alternatives if of_kind else ():
            chosen = emulated(alternative) if is_emulated else alternative
            yield from ((launch, min(of_kind, key=asks_for)) for launch in chosen.launches)
    if not all(strategy.isa or strategy.is_emulated for strategy in strategies):
        for alternative in alternatives:
            yield from in_halves(alternative)


def asks_for(strategy: Strategy) -> tuple[int, int]:
    """Return the number of a strategy's requirements; the first one with the fewest is used."""
    return len(strategy.isa), PLACES.get(strategy.name, 0)


@pytest.fixture
def kernels(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    # NOTE: PoCL and rusticl drop warnings of successful builds, so the build must fail.
    monkeypatch.setattr(runtime_programs, "OPTIONS", [*OPTIONS, "-Werror"])
    own_options = Programs._own_options

    def with_others(self: Programs, file: str) -> list[str]:
        return [*own_options(self, file), *unoptimised(file)]

    monkeypatch.setattr(Programs, "_own_options", with_others)
    return Kernels(_opened(device))


def unoptimised(file: str) -> list[str]:
    """Return the option for a build without optimisation, which PoCL does in a third of the time.

    Optimisation adds only one warning, about a `#pragma unroll` that it cannot obey.
    """
    text = sources.text_of(f"{file}.cl")
    is_unrolled = "UNROLLED (" in text or "#pragma unroll" in text
    return [] if is_unrolled else ["-cl-opt-disable"]


@cache
def _opened(device: DeviceInfo) -> Device:
    # As for users: with kernels/builtins.clh if proven, otherwise with the driver's header.
    return Device(device, proven=examine(device).isa)


@slow
def test_nodes_cover_every_kernel() -> None:
    stems = {launch.kernel for launch, _ in _launches().values()}
    written = {name for path in files().values() for name in KERNEL.findall(path.read_text())}
    assert stems == written


FILES = sorted(path.stem for path in files().values() if KERNEL.search(path.read_text()))


@slow
@pytest.mark.parametrize("file", FILES)
def test_kernels_build_without_warnings_or_optional_types(
    file: str, kernels: Kernels, device: DeviceInfo
) -> None:
    builds = {
        name: build(launch, strategy)
        for name, (launch, strategy) in _launches().items()
        if launch.file == file and has_isa(strategy, device)
    }
    if not builds:
        pytest.skip(f"{device.name} has not proven what these kernels need")
    names = list(builds)
    wrong = {}
    # PoCL reads its OpenCL header for each source, which takes longer than most kernels.
    for first in range(0, len(names), A_SOURCE):
        some = names[first : first + A_SOURCE]
        if not is_clean(kernels, file, "".join(side_by_side(builds[name]) for name in some)):
            alone = {name: complaints_alone(kernels, file, builds[name]) for name in some}
            wrong |= {name: lines for name, lines in alone.items() if lines}
    assert wrong == {}


def build(launch: Launch, strategy: Strategy) -> str:
    """Return the source of a launch's program, without optional types."""
    # A device with the required instructions has the optional types, too.
    # OpenCL C 1.2 allows half as a storage type.
    may_have_all = bool(strategy.isa) or "HALVES" in launch.defines
    return source_of(launch.file, defines_of(launch, True) | ({} if may_have_all else FORBIDDEN))


def complaints(log: str) -> list[str]:
    """Return the lines of a driver's log without known remarks."""
    return [line for line in log.splitlines() if not REMARK.search(line)]


def complaints_alone(kernels: Kernels, file: str, source: str) -> list[str]:
    """Return the driver's complaints about one program."""
    try:
        return complaints(kernels.rebuild(file, source)[1])
    except DeviceError as error:
        return complaints(str(error))


def is_clean(kernels: Kernels, file: str, source: str) -> bool:
    """Whether the driver builds a program without complaints."""
    try:
        return not complaints(kernels.rebuild(file, source)[1])
    except DeviceError:
        return False  # also for a known remark, which may hide other messages


_number = count()


def side_by_side(source: str) -> str:
    """Return a program's source with unique names and macros, to be concatenated with others."""
    source = f"#define BODY _{next(_number)}\n" + source
    macros = dict.fromkeys(DEFINED.findall(source))
    kernel = re.compile(r"^( *kernel GROUP_SIZE void )name\(", re.MULTILINE)
    own, places = kernel.subn(r"\1LOCAL(name)(", source)
    assert places == 2  # parameter block as an argument, and in memory
    return own + "".join(f"\n#undef {macro}" for macro in macros) + "\n"


def _fallback_launch(op: str) -> tuple[Launch, Strategy]:
    """Return the launch of an 8-bit node that needs least of a device."""
    strategy = STRATEGIES[0]
    return _lowered(valid_nodes("uint8")[op], Target(**strategy.facts))[-1].launches[0], strategy


def test_warning_is_detected(kernels: Kernels) -> None:
    launch, strategy = _fallback_launch("AVERAGE_POOL_2D")
    source = build(launch, strategy)
    wrong = build(replace(launch, defines={**launch.defines, "TAKES_MAX": "(1 / 0)"}), strategy)
    assert complaints_alone(kernels, "pool_2d", source) == []
    for each in (wrong, "".join(map(side_by_side, (source, wrong, source)))):
        with pytest.raises(DeviceError, match="division by zero"):
            kernels.rebuild("pool_2d", each)


@pytest.mark.parametrize("word", ["long", "ulong", "double", "half", "long4"])
def test_optional_type_is_detected(word: str, kernels: Kernels) -> None:
    launch, _ = _fallback_launch("ADD")
    source = source_of("add", {**defines_of(launch), **FORBIDDEN, "ELEM": word})
    with pytest.raises(KernelBuildError):
        kernels.source("add", source, {})


def test_language_version_is_opencl_c_1_2() -> None:
    assert "-cl-std=CL1.2" in OPTIONS


@pytest.mark.parametrize("path", files().values(), ids=lambda path: path.name)
def test_float_literals_have_suffix(path: Path) -> None:
    # Without the f they are doubles, which the macros above do not detect.
    code = re.sub(r"//.*|/\*.*?\*/", "", path.read_text())
    assert re.findall(r"\b\d+\.\d*(?:e[+-]?\d+)?(?!\w)", code) == []
