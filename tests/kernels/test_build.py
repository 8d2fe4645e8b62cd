# SPDX-License-Identifier: Apache-2.0
"""Every kernel with every set of macros its op emits builds without a warning, on every device."""

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
from delegate.guard.probing.self_tests import device_launch, program_of
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
from tests.support.cases import EVERY_WAY, WAYS, Way, emulated, has_isa
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
# the built-in functions' own declarations, which a forced way may ask for.
REMARK = re.compile(
    r"Function \w+ is a kernel, so overriding noinline attribute"
    r"|without 'avx512f' enabled changes the ABI|failed to build the program"
)


KERNEL = re.compile(r"^KERNEL\((\w+)\)$", re.MULTILINE)
DEFINED = re.compile(r"^[ \t]*#define[ \t]+(\w+)", re.MULTILINE)
A_SOURCE = 24  # programs that are built as one


class Noting(Target):
    """A target that notes which of its facts are read."""

    noted: ClassVar[set[str]] = set()

    def __getattribute__(self, name: str) -> Any:
        if name in Target.__dataclass_fields__:
            Noting.noted.add(name)
        return super().__getattribute__(name)


def lowered(
    node: Node, asked: Sequence[tuple[Way, Noting, dict[str, Any]]]
) -> Iterator[tuple[tuple[Alternative, ...], list[Way]]]:
    """Yield each set of alternatives that a node has, and the ways that give it.

    `asked`: ways, their targets, and those targets' facts.

    Lowering is pure: targets that agree in all facts that it reads have the same alternatives.
    """
    known: list[tuple[dict[str, Any], tuple[Alternative, ...], list[Way]]] = []
    for way, target, facts in asked:
        for read, _, ways in known:
            if all(facts[name] == value for name, value in read.items()):
                ways.append(way)
                break
        else:
            Noting.noted.clear()
            found = _lowered(node, target)
            known.append(({name: facts[name] for name in Noting.noted}, found, [way]))
    yield from ((found, ways) for _, found, ways in known)


def _lowered(node: Node, target: Target) -> tuple[Alternative, ...]:
    try:
        return ops.lower(node, target)
    except Unsupported:
        # A pass asks before it makes a node of its own, and leaves the graph as it was.
        if node.op.islower():
            return ()
        raise


# Floats are eight in a load only as halves.
EIGHT_HALVES = Way("eight halves", {"device_type": "gpu", "load_lanes": 8})
PLACES = {way.name: place for place, way in enumerate(EVERY_WAY)}


def in_halves(alternative: Alternative) -> Iterator[tuple[Launch, Way]]:
    """Yield the launches that an alternative has where floats are halves, if it may have them."""
    types = ("ELEM", "RESULT")
    if {launch.defines.get(of, "float") for launch in alternative.launches for of in types} != {
        "float"
    }:
        return
    for isa in (frozenset({FP16_STORAGE}), frozenset({FP16_STORAGE, FP16})):
        half = fp16_alternative(alternative, {}, FP16 in isa)
        if half is not None:
            yield from ((launch, Way("halves", {"isa": isa})) for launch in half.launches)


@cache
def _launches() -> dict[str, tuple[Launch, Way]]:
    """Return a launch for each set of macros there is and a way to it, by a name for people."""
    found = [(device_launch()[0], WAYS[0])]
    for feature in FEATURES:
        # The compiler's own dot products; the order's kernel for what uses assembly elsewhere.
        if feature.needs == INTEGER_DOT_PRODUCT or feature.name.startswith("order_"):
            continue
        way = Way(feature.name, {"isa": frozenset({feature.name})})
        found.append((program_of(feature).launches[0], WAYS[0] if feature.macro else way))
    found.append((registers_launch(1), WAYS[0]))
    found += [(rate_launch(family, 1, 1), WAYS[0]) for family in ("float", "quant8")]
    targets = [
        (way, Noting(**{**way.facts, "rules": rules}))
        for way in (*EVERY_WAY, EIGHT_HALVES)
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
    asked = [
        (way, target, {name: getattr(target, name) for name in names}) for way, target in targets
    ]
    for node in built_nodes():
        for alternatives, ways in lowered(node, asked):
            found += launches_of(alternatives, ways)
    named: dict[str, tuple[Launch, Way]] = {}
    for launch, way in found:
        chosen_macros = [f"{name}={value}" for name, value in launch.defines.items()]
        name = "-".join([launch.kernel, *chosen_macros]).lower()
        if name not in named or asks_for(way) < asks_for(named[name][1]):
            named[name] = launch, way
    return named


def launches_of(
    alternatives: Sequence[Alternative], ways: Sequence[Way]
) -> Iterator[tuple[Launch, Way]]:
    """Yield the launches of alternatives that these ways give, each with the one it is built by."""
    forced = [way for way in ways if way is not EIGHT_HALVES]
    for is_emulated in (False, True):
        of_kind = [way for way in forced if way.is_emulated == is_emulated]
        for alternative in alternatives if of_kind else ():
            chosen = emulated(alternative) if is_emulated else alternative
            yield from ((launch, min(of_kind, key=asks_for)) for launch in chosen.launches)
    if not all(way.isa or way.is_emulated for way in ways):
        for alternative in alternatives:
            yield from in_halves(alternative)


def asks_for(way: Way) -> tuple[int, int]:
    """Return how much a way asks of a device; of equals, the first one is taken."""
    return len(way.isa), PLACES.get(way.name, 0)


@pytest.fixture
def kernels(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    # NOTE: PoCL and rusticl drop their warnings when a build succeeds, so it must not.
    monkeypatch.setattr(runtime_programs, "OPTIONS", [*OPTIONS, "-Werror"])
    own_options = Programs._own_options

    def with_others(self: Programs, file: str) -> list[str]:
        return [*own_options(self, file), *unoptimised(file)]

    monkeypatch.setattr(Programs, "_own_options", with_others)
    return Kernels(_opened(device))


def unoptimised(file: str) -> list[str]:
    """Return the option of a build without optimisation, which takes PoCL a third of the time.

    Optimisation adds one warning alone: of a `#pragma unroll` that it cannot follow.
    """
    text = sources.text_of(f"{file}.cl")
    is_unrolled = "UNROLLED (" in text or "#pragma unroll" in text
    return [] if is_unrolled else ["-cl-opt-disable"]


@cache
def _opened(device: DeviceInfo) -> Device:
    # As users have it: with kernels/builtins.clh where proven, else with the driver's header.
    return Device(device, proven=examine(device).isa)


@slow
def test_every_kernel_is_built() -> None:
    stems = {launch.kernel for launch, _ in _launches().values()}
    written = {name for path in files().values() for name in KERNEL.findall(path.read_text())}
    assert stems == written


FILES = sorted(path.stem for path in files().values() if KERNEL.search(path.read_text()))


@slow
@pytest.mark.parametrize("file", FILES)
def test_builds_without_warnings_or_forbidden_types(
    file: str, kernels: Kernels, device: DeviceInfo
) -> None:
    builds = {
        name: build(launch, way)
        for name, (launch, way) in _launches().items()
        if launch.file == file and has_isa(way, device)
    }
    if not builds:
        pytest.skip(f"{device.name} has not proven what these kernels need")
    names = list(builds)
    wrong = {}
    # PoCL reads OpenCL's own header for each source, which takes longer than most kernels.
    for first in range(0, len(names), A_SOURCE):
        some = names[first : first + A_SOURCE]
        if not is_clean(kernels, file, "".join(side_by_side(builds[name]) for name in some)):
            alone = {name: complaints_alone(kernels, file, builds[name]) for name in some}
            wrong |= {name: lines for name, lines in alone.items() if lines}
    assert wrong == {}


def build(launch: Launch, way: Way) -> str:
    """Return the source of a launch's program, without the types that a device need not have."""
    # What needs instructions of its own runs only where they are: such a device has the types too.
    # Halves that are only stored are in OpenCL C 1.2.
    may_have_all = bool(way.isa) or "HALVES" in launch.defines
    return source_of(launch.file, defines_of(launch, True) | ({} if may_have_all else FORBIDDEN))


def complaints(log: str) -> list[str]:
    """Return the lines of a driver's log that are no known remark."""
    return [line for line in log.splitlines() if not REMARK.search(line)]


def complaints_alone(kernels: Kernels, file: str, source: str) -> list[str]:
    """Return what the driver says against one program."""
    try:
        return complaints(kernels.rebuild(file, source)[1])
    except DeviceError as error:
        return complaints(str(error))


def is_clean(kernels: Kernels, file: str, source: str) -> bool:
    """Whether the driver builds it and says nothing against it."""
    try:
        return not complaints(kernels.rebuild(file, source)[1])
    except DeviceError:
        return False  # also for a remark, which may keep others from being said


_number = count()


def side_by_side(source: str) -> str:
    """Return a program's source so that it can stand beside others: names and macros its own."""
    source = f"#define BODY _{next(_number)}\n" + source
    macros = dict.fromkeys(DEFINED.findall(source))
    kernel = re.compile(r"^( *kernel GROUP_SIZE void )name\(", re.MULTILINE)
    own, places = kernel.subn(r"\1LOCAL(name)(", source)
    assert places == 2  # with the block as an argument, and in memory
    return own + "".join(f"\n#undef {macro}" for macro in macros) + "\n"


def _fallback_launch(op: str) -> tuple[Launch, Way]:
    """Return the launch of an 8-bit node that needs least of a device."""
    way = WAYS[0]
    return _lowered(valid_nodes("uint8")[op], Target(**way.facts))[-1].launches[0], way


def test_a_warning_is_seen(kernels: Kernels) -> None:
    launch, way = _fallback_launch("AVERAGE_POOL_2D")
    source = build(launch, way)
    wrong = build(replace(launch, defines={**launch.defines, "TAKES_MAX": "(1 / 0)"}), way)
    assert complaints_alone(kernels, "pool_2d", source) == []
    for each in (wrong, "".join(map(side_by_side, (source, wrong, source)))):
        with pytest.raises(DeviceError, match="division by zero"):
            kernels.rebuild("pool_2d", each)


@pytest.mark.parametrize("word", ["long", "ulong", "double", "half", "long4"])
def test_a_forbidden_type_is_seen(word: str, kernels: Kernels) -> None:
    launch, _ = _fallback_launch("ADD")
    source = source_of("add", {**defines_of(launch), **FORBIDDEN, "ELEM": word})
    with pytest.raises(KernelBuildError):
        kernels.source("add", source, {})


def test_language_is_opencl_c_1_2() -> None:
    assert "-cl-std=CL1.2" in OPTIONS


@pytest.mark.parametrize("path", files().values(), ids=lambda path: path.name)
def test_float_literals_are_float(path: Path) -> None:
    # Without the f they are doubles, which the macros above cannot see.
    code = re.sub(r"//.*|/\*.*?\*/", "", path.read_text())
    assert re.findall(r"\b\d+\.\d*(?:e[+-]?\d+)?(?!\w)", code) == []
