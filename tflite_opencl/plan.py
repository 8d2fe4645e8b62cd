# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl plan`: shows how a model's nodes run on a device, or writes the plan to a file."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from delegate import OpenCLDelegate
from delegate.inspect import PartitionPlan
from tflite_opencl.cli.flags import PLACED_THREADS, add_device_arguments, add_flag, options_of
from tflite_opencl.cli.outputs import as_json, shown
from tflite_opencl.console.errors import CommandError
from tflite_opencl.console.exit_codes import NOT_SO
from tflite_opencl.console.tables import columns, render, terminal_width
from tflite_opencl.interpreters.interpreter import delegated, read_graph
from tflite_opencl.interpreters.runtime import find_runtime

HELP = "what of a model runs where and how on this device; --output writes it for equal machines"
EXAMPLES = (
    ("tflite-opencl plan model.tflite --show", "which kernels each node runs as, and the memory"),
    (
        "tflite-opencl plan model.tflite --output m.plan --tune full",
        "for equal boards",
    ),
)
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class _Launch:
    """A launch as displayed."""

    partition: int
    node: int
    op: str
    alternative: str
    kernel: str
    work_items: int  # 0: one call makes several launches
    group: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    parser.add_argument("model", metavar="MODEL", help="a .tflite file")
    add_flag(parser, "output", more=", for --plan of label_image and others")
    text = "show what runs where and how; without --output this is what the command does"
    parser.add_argument("--show", action="store_true", help=text)
    add_device_arguments(parser, tune="quick")
    add_flag(parser, "threads", PLACED_THREADS, " that --placement times")
    add_flag(parser, "json")


def run(options: argparse.Namespace) -> str:
    """Return the text to print.

    Raises: CommandError: the model cannot be read or run, there is no device, or no node runs on
        it, in which case the text is the result. PlanError: the file cannot be written.
    """
    graph = read_graph(options.model)
    told = options_of(options, [graph], profiling=False)
    runtime, threads = find_runtime(), options.threads
    opened = delegated(options.model, graph, told, runtime, "builtin", threads=threads)
    with opened as (_, delegate):
        facts, text = _facts(options.model, delegate), ""
        if options.output and delegate.plans:
            delegate.write_plan(options.output)
            text = _file_summary(options.output, facts)
        elif options.output:
            text = f"{options.output} is not written: no node runs on the device"
        if options.show or not (options.output and delegate.plans):
            text = "\n".join(filter(None, (_text(delegate, facts), text)))
        text = shown(options, text, json=lambda: as_json(facts))
        if not delegate.plans:
            raise CommandError(text, NOT_SO)
        return text


def _file_summary(path: str, facts: dict[str, Any]) -> str:
    size, nodes = os.path.getsize(path) / _MIB, sum(each["nodes"] for each in facts["partitions"])
    return f"{path}: {size:.1f} MiB, {nodes} nodes on {facts['device']}; {_tuning_summary(facts)}"


def _tuning_summary(facts: dict[str, Any]) -> str:
    left = facts["not_measured"]
    return f"{left} choices were not measured: --tune full does" if left else "all was measured"


def _facts(model: str, delegate: OpenCLDelegate) -> dict[str, Any]:
    plans = delegate.plans
    return {
        "model": model,
        "device": delegate.device_name,
        "nodes": [verdict._asdict() for verdict in delegate.verdicts],
        "not_measured": delegate.tuning_left,
        "partitions": [_partition(plan) for plan in plans],
        "launches": [asdict(each) for each in _launches(plans)],
    }


def _partition(plan: PartitionPlan) -> dict[str, Any]:
    return {
        "nodes": len({step.node_index for step in plan.steps}),
        "dispatch": plan.dispatch_mode,
        "threads": not plan.has_no_threads,
        "copies": plan.copy_strategy,
        "kernels_enqueued": len(plan.calls),
        "programs": len({call.program for call in plan.calls}),
        "arena_bytes": plan.memory.arena_bytes,
        "constant_bytes": plan.memory.constant_bytes,
        "fp16": plan.uses_fp16,
    }


def _launches(plans: Sequence[PartitionPlan]) -> list[_Launch]:
    rows = []
    for number, plan in enumerate(plans):
        sizes: list[tuple[int, int]] = []
        for call in plan.calls:
            own = (call.global_size, call.local_size) if call.launches == 1 else (0, 0)
            sizes += [own] * call.launches
        each_size = iter(sizes)
        for step in plan.steps:
            for launch in step.launches:
                items, group = next(each_size)
                node = step.node_index, step.op, step.alternative
                rows.append(_Launch(number, *node, launch.kernel, items, group))
    return rows


def _text(delegate: OpenCLDelegate, facts: dict[str, Any]) -> str:
    verdicts, plans = delegate.verdicts, delegate.plans
    taken = sum(verdict.is_taken for verdict in verdicts)
    lines = [f"{taken} of {len(verdicts)} nodes run on {delegate.device_name}"]
    for (op, why), count in Counter((v.op, v.reason) for v in verdicts if v.reason).items():
        lines.append(f"on the CPU: {count} x {op}: {why}")
    for number, each in enumerate(facts["partitions"]):
        memory = each["arena_bytes"] / _MIB, each["constant_bytes"] / _MIB
        lines.append(
            f"partition {number}: {each['nodes']} nodes; launches {each['dispatch']}, "
            f"{each['kernels_enqueued']} kernels of {each['programs']} programs; "
            f"{memory[0]:.1f} MiB of tensors, {memory[1]:.1f} MiB of constants; "
            f"inputs and outputs {each['copies']}"
        )
    lines.append(_tuning_summary(facts))
    rows = [
        (
            str(each.node),
            each.op,
            each.alternative,
            each.kernel,
            str(each.work_items or "in one call"),
            str(each.group or ""),
        )
        for each in _launches(plans)
    ]
    heads = ("node", "op", "alternative", "kernel", "work-items", "a group")
    return "\n".join([render(terminal_width(), columns(heads, rows, left=4)), *lines])
