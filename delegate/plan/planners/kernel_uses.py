# SPDX-License-Identifier: Apache-2.0
"""Models + device facts -> every kernel they may launch there. Nothing is built."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from delegate.format.stateful import read_stateful
from delegate.graph.infer import infer
from delegate.graph.ir import Node
from delegate.graph.partition import Partition, partitions, products
from delegate.graph.persistent import with_variables
from delegate.host.tflite.library import installed_rules
from delegate.isa import FP16, FP16_STORAGE, ORDERS, most_lanes, portable_on
from delegate.launch import Alternative, Constant, Launch, size_bytes
from delegate.plan.call_groups import CallGroup, call_groups, reordered
from delegate.plan.dispatch.fused_launches import FILE, fused_source
from delegate.plan.dispatch.survey import DeviceLimits
from delegate.plan.lowering import compiler
from delegate.plan.sources import defines_of, may_be_argument, source_of
from delegate.run.device_list import DeviceInfo
from delegate.target import Target

_LOOK_UPS = ("EMBEDDING_LOOKUP", "GATHER")  # their constant is a table


@dataclass(frozen=True, slots=True)
class ExpectedLaunch:
    """A launch of the alternative that is expected to be its node's fastest."""

    items: int  # work-items
    products: int  # multiply-adds of the node, where it reads the node's constant weights
    size_bytes: int  # of all tensors read and written
    model: int = 0  # index in the models given
    call: int = 0  # number of the kernel call that runs it: a fused one runs several


@dataclass(frozen=True, slots=True)
class KernelUse:
    """A kernel of one schedule, and how often the models launch it."""

    kernel: str  # the function's name
    variants: tuple[str, ...]  # the alternatives that launch it
    macros: tuple[str, ...]  # "NAME=VALUE", its defines without parameter offsets
    file: str  # stem of the .cl file
    source: str  # the full compiler input
    group_items: int  # requested work-group size
    launches: int  # per run of each model, if every node that may launch it does
    expected: tuple[ExpectedLaunch, ...]  # those of alternatives expected to be the fastest
    # Whether it is specialised, with its parameters as constants. Each layer has such a kernel;
    # this one stands for all: it is of the layer with the most work-items among the expected
    # launches of the same generic kernel.
    is_specialised: bool = False


def kernel_uses(
    models: Sequence[str | os.PathLike[str] | bytes],
    info: DeviceInfo,
    limits: DeviceLimits,
    isa: Collection[str] | None,
    allows_fp16: bool = False,
    signature: str | None = None,
) -> tuple[KernelUse, ...]:
    """Return every kernel that models' nodes may launch on a device, in order of their first use.

    `isa`: the device's proven features. None: its self-test failed, and only what OpenCL C 1.2
    guarantees is assumed. `allows_fp16`: floats may be stored as fp16; the device's fp16 features
    are then assumed, too. `signature`: whose graph of each model; None: its first.

    Raises:
        SignatureError: a model has no such signature. ModelError: it cannot be read. OSError: nor
            can its file.
    """
    proven = frozenset(portable_on(info.type) if isa is None else isa)
    if allows_fp16 and isa is None:
        proven |= {FP16_STORAGE, *([FP16] if limits.has_fp16 else [])}
    target = Target(
        device_type=info.type,
        vector_width=min(limits.int_vector_width, most_lanes(proven)),
        compute_units=limits.compute_units,
        registers=limits.registers,
        isa=proven,
        rules=installed_rules(),
    )

    def text(launch: Launch) -> str:
        is_argument = may_be_argument(launch, proven, limits.max_argument_bytes)
        return source_of(launch.file, defines_of(launch, is_argument))

    launched: dict[tuple[str, str], list[_Launched]] = {}  # by file and defines

    def count(model: int, partition: Partition, without: Sequence[Node] = ()) -> list[CallGroup]:
        groups, launches = _launches(model, partition, target, without, are_shared, first_call)
        for each in launches:
            launched.setdefault((each.launch.kernel, text(each.launch)), []).append(each)
        return groups

    are_shared, first_call = isa is None or not proven & ORDERS, 0
    fused_uses: dict[str, KernelUse] = {}  # of fused launches, by source
    for number, model in enumerate(models):
        graph = infer(with_variables(read_stateful(model, signature)))
        verdicts = compiler.verdicts(graph, target, _takes)
        for partition in partitions(graph, {each.node for each in verdicts if each.is_taken}):
            fused = compiler.rewritten(partition, target, _takes, allows_fp16=allows_fp16)
            groups = count(number, fused)
            first_call += len(groups)
            for group in groups:
                if len(group.launches) > 1:
                    use = _use_of_group(group)
                    use = fused_uses.setdefault(use.source, use)
                    fused_uses[use.source] = replace(use, launches=use.launches + 1)
            if fused is not partition and not allows_fp16:
                count(number, partition, without=fused.nodes)
    return (*_uses(launched, text), *fused_uses.values())


def _takes(_: Alternative) -> str | None:
    return None


class _Launched(NamedTuple):
    """A launch of a model's node."""

    launch: Launch
    variant: str
    expected: ExpectedLaunch | None  # if its alternative is expected to be the fastest


def _launches(
    model: int,
    partition: Partition,
    target: Target,
    without: Sequence[Node],
    are_shared: bool,
    first_call: int,
) -> tuple[list[CallGroup], list[_Launched]]:
    """Return the calls of a partition, and the launches of each alternative of each node.

    `without`: the nodes of the rewritten partition, which were counted there; if given, no
    launch of this partition counts as expected. `are_shared`: whether calls may be.
    """
    found: list[_Launched] = []
    is_rewritten, known_nodes = bool(without), {*without}
    chosen: dict[Node, Alternative] = {}

    def look(node: Node, alternatives: Sequence[Alternative]) -> Alternative:
        for alternative in alternatives if node not in known_nodes else ():
            chosen[node] = alternatives[0]
            if is_rewritten or alternative is not alternatives[0]:
                found.extend(
                    _Launched(each, alternative.name, None) for each in alternative.launches
                )
        return alternatives[0]

    schedule = compiler.compile_partition(partition, target, look)
    if is_rewritten:
        return [], found
    groups = [CallGroup((), (launch,)) for launch in schedule.launches]
    if are_shared:
        groups = call_groups(reordered(schedule))
    calls = {each: number for number, group in enumerate(groups) for each in group.launches}
    for node, step in zip(partition.nodes, schedule.steps, strict=True):
        # A node updated in place, or merged with another, has fewer launches.
        left = [*step.alternative.launches]
        for launch in chosen[node].launches:
            is_left = bool(left) and left[0].kernel == launch.kernel
            expected = None
            if is_left:
                own = left.pop(0)
                expected = _expected(own, chosen[node], node, model, first_call + calls[own])
            found.append(_Launched(launch, chosen[node].name, expected))
    return groups, found


def _uses(
    launched: Mapping[tuple[str, str], Sequence[_Launched]], text: Callable[[Launch], str]
) -> Iterable[KernelUse]:
    """Return a record for each kernel, and a specialised one where that is expected to run."""
    found: dict[tuple[str, ...], KernelUse] = {}
    for (kernel, source), of_kernel in launched.items():
        first = of_kernel[0].launch
        expected = [(each.expected, each.launch) for each in of_kernel if each.expected]
        found[kernel, source] = use = KernelUse(
            kernel=kernel,
            variants=tuple(dict.fromkeys(each.variant for each in of_kernel)),
            macros=tuple(f"{name}={value}" for name, value in first.defines.items()),
            file=first.file,
            source=source,
            group_items=first.group_items,
            launches=len(of_kernel),
            expected=tuple(each for each, _ in expected),
        )
        if not expected:
            continue
        variants = [f"{name}, specialised" for name in use.variants]
        _, largest = max(expected, key=lambda each: each[0].items)
        specialised = replace(
            use, source=text(largest.specialised()), expected=(), is_specialised=True
        )
        specialised = replace(specialised, macros=(*use.macros, "specialised"))
        key = kernel, *specialised.macros
        if (same := found.get(key)) is not None:
            variants = [*same.variants, *variants]
            specialised = replace(same, launches=same.launches + use.launches)
        found[key] = replace(specialised, variants=tuple(dict.fromkeys(variants)))
    return found.values()


def _use_of_group(group: CallGroup) -> KernelUse:
    """Return the record of a fused kernel, given its launches."""
    parts, source = [f"{each.kernel}={each.tiles}" for each in group.launches], fused_source(group)
    return KernelUse(FILE, ("fused",), (*parts,), FILE, source.text, source.group_items, 0, ())


def _expected(
    launch: Launch, alternative: Alternative, node: Node, model: int, call: int
) -> ExpectedLaunch:
    """Return the record of an expected launch."""
    tile_items = launch.params.get("tile_items", launch.group_items)
    assert isinstance(tile_items, int)
    constants = _constants(launch)
    is_product = max(constants, default=0) == max(
        (size for each in alternative.launches for size in _constants(each)), default=0
    )
    return ExpectedLaunch(
        items=launch.tiles * tile_items,
        products=products(node) if is_product and node.op not in _LOOK_UPS else 0,
        size_bytes=sum(constants)
        + sum(size_bytes(tensor) for tensor in (*launch.reads, *launch.writes)),
        model=model,
        call=call,
    )


def _constants(launch: Launch) -> list[int]:
    return [each.size_bytes for each in launch.params.values() if isinstance(each, Constant)]
