# SPDX-License-Identifier: Apache-2.0
"""Formats a verification as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from delegate.inspect import LaunchSize
from tflite_opencl.console.tables import columns, render
from tflite_opencl.models.build import sizes
from tflite_opencl.oracle.values import OutputMismatch
from tflite_opencl.verify.errors import Array, Errors, errors, map_text
from tflite_opencl.verify.records import Check, Fault, Verification

_MOST_ROWS = 40
_FIRST = 8  # elements shown of a tensor
_BAR = 40
_HEADINGS = (
    "node", "op", "tensor", "alternative", "alone: wrong, most", "after others: wrong, most"
)  # fmt: skip


def text_of(found: Verification, width: int) -> str:
    """Return the verdict, the differences, and what was not compared."""
    differing = [check for check in found.checks if check.alone or check.after_others]
    parts = (
        _head(found),
        _fault_text(found.fault) if found.fault else "",
        _table(differing, width) if differing else "",
        _whole_text(found) if found.whole else "",
        _left_text(found),
    )
    return "\n\n".join(filter(None, parts))


def _head(found: Verification) -> str:
    alone = sum(check.alone is None for check in found.checks)
    after = sum(check.after_others is None for check in found.checks)
    inputs = "1 input" if found.count == 1 else f"{found.count} inputs"
    count = len(found.checks)
    rounding = "" if found.whole_is_judged else ", or floats that only round in another order"
    lines = [
        f"{found.device}: {count} tensors compared with {found.reference}, {inputs}",
        *([f"of these {found.reasons}"] if found.reasons else []),
        f"on the reference's inputs, each node alone: {alone} of {count} equal{rounding}",
        f"on the device's own inputs, one after the other: {after} of {count} equal",
    ]
    if found.fault is None and not found.is_wrong:
        lines.append("no node is wrong")
    return "\n".join(lines)


def _fault_text(fault: Fault) -> str:
    check, step = fault.check, fault.check.step
    found = errors(fault.got, fault.expected)
    plane, name = found.plane
    how, difference = "wrong on the reference's inputs", check.alone
    if not fault.is_alone:
        how = "right on the reference's inputs, wrong after the nodes before it"
        difference = check.after_others
    more = f", with node {', '.join(map(str, check.with_nodes))}" if check.with_nodes else ""
    called = f" {check.tensor.name}" if check.tensor.name else ""
    ends = {i: f", {v.min():g} .. {v.max():g}" if v.size else "" for i, v in fault.inputs.items()}
    lines = [
        f"the first wrong node: {step.node} {step.op}{more}: {how}",
        f"output: tensor {check.tensor.index}{called}, {_kind(fault.got)}",
        *(f"input: tensor {i}, {_kind(of)}{ends[i]}" for i, of in fault.inputs.items()),
        f"alternative: {step.alternative}",
        *map(_launch_text, step.launches),
        "" if difference is None else difference.plain(),
        "",
        *_elements(fault, found),
        "",
        "errors, the device's less the reference's:",
        *_bars(found.histogram),
        "",
        "place: " + "; ".join(_extents(found)),
        f"map of {name}, '.' is equal:",
        map_text(plane),
    ]
    return "\n".join(lines)


def _kind(values: Array) -> str:
    return f"{sizes(values.shape)} {values.dtype}"


def _launch_text(launch: LaunchSize) -> str:
    groups = launch.global_size // max(launch.local_size, 1)
    macros = f", built with {' '.join(launch.macros)}" if launch.macros else ""
    return (
        f"kernel: {launch.kernel} in {launch.file}.cl, {groups} work-groups of "
        f"{launch.local_size}{macros}; {' '.join(launch.params)}"
    )


def _elements(fault: Fault, found: Errors) -> list[str]:
    """Return the first elements of the tensor, and the first wrong ones, one per line."""
    got, expected = np.atleast_1d(fault.got), np.atleast_1d(fault.expected)
    places = [*map(tuple, np.argwhere(np.atleast_1d(found.apart) != 0)[:_FIRST].tolist())]
    firsts = (", ".join(f"{value:g}" for value in of.ravel()[:_FIRST]) for of in (got, expected))
    return [
        *map(": ".join, zip(("first elements", "they should be"), firsts, strict=True)),
        "first that differ:",
        *(f"  {list(p)}: {got[p]:g} instead of {expected[p]:g}" for p in places),
    ]


def _bars(rows: Sequence[tuple[str, int]]) -> list[str]:
    names, counts = zip(*rows, strict=True)
    wide, most = max(map(len, names)), max(counts)
    return [
        f"  {name:>{wide}}  {count:{len(str(most))}d}  {'#' * max(1, round(_BAR * count / most))}"
        for name, count in rows
    ]


def _extents(found: Errors) -> list[str]:
    return [
        f"axis {axis}: {count} of {size}"
        + (f", from {first} to {last}" if count < size and count > 1 else "")
        + (f", at {first}" if count == 1 and size > 1 else "")
        for axis, ((first, last, count), size) in enumerate(
            zip(found.extent, found.apart.shape, strict=True)
        )
    ]


def _table(checks: list[Check], width: int) -> str:
    rows = [
        (
            *(str(check.step.node), check.step.op, str(check.tensor.index)),
            *(check.step.alternative, _apart(check.alone), _apart(check.after_others)),
        )
        for check in checks[:_MOST_ROWS]
    ]
    more = len(checks) - _MOST_ROWS
    table = render(width, columns(_HEADINGS, rows, left=4)).strip("\n")
    return table + (f"\n{more} more differ" if more > 0 else "")


def _apart(found: OutputMismatch | None) -> str:
    if found is None:
        return "equal"
    within = "" if found.is_beyond else " (allowed)"
    return f"{100 * found.count / max(found.size, 1):.3g} %, {found.most:.4g}{within}"


def _whole_text(found: Verification) -> str:
    lines = ["the model's outputs, run as label_image runs it:"]
    lines += [f"  {each.plain()}" for each in found.whole]
    if found.fault is None and found.whole_is_judged:
        lines.append(
            "each node is right: what is wrong is the form in which the launches reach the device, "
            "or another alternative"
        )
    return "\n".join(lines)


def _left_text(found: Verification) -> str:
    left = Counter((v.op, v.reason) for v in found.verdicts if v.reason is not None)
    lines = []
    if left:
        total = sum(left.values())
        lines.append(f"not compared, because the CPU runs them: {total} of {len(found.verdicts)}")
        lines += [f"  {count} x {op}: {reason}" for (op, reason), count in left.most_common()]
    if found.constants:
        nodes = ", ".join(map(str, found.constants))
        lines.append(f"not compared, because their results are known before a run: nodes {nodes}")
    return "\n".join(lines)


def document(found: Verification) -> dict[str, Any]:
    """Return the verification for JSON."""
    return {
        "device": found.device,
        "reference": found.reference,
        "other_kernels": found.reasons,
        "inputs": found.count,
        "wrong": found.is_wrong,
        "first_wrong": None if found.fault is None else _fault_document(found.fault),
        "nodes": [
            {
                **_step_document(check),
                "alternative": check.step.alternative,
                "launches": [asdict(launch) for launch in check.step.launches],
                "alone": _difference(check.alone),
                "after_others": _difference(check.after_others),
            }
            for check in found.checks
        ],
        "outputs": [_difference(each) for each in found.whole],
        "left_to_cpu": [
            {"node": v.node, "op": v.op, "reason": v.reason}
            for v in found.verdicts
            if v.reason is not None
        ],
        "constants": list(found.constants),
    }


def _step_document(check: Check) -> dict[str, Any]:
    return {"node": check.step.node, "op": check.step.op, "tensor": check.tensor.index}


def _fault_document(fault: Fault) -> dict[str, Any]:
    found = errors(fault.got, fault.expected)
    return {
        **_step_document(fault.check),
        "with_nodes": list(fault.check.with_nodes),
        "kernels": [launch.kernel for launch in fault.check.step.launches],
        "wrong_alone": fault.is_alone,
        "input": fault.number,
        "histogram": dict(found.histogram),
        "extent": [list(each) for each in found.extent],
    }


def _difference(found: OutputMismatch | None) -> dict[str, Any] | None:
    if found is None:
        return None
    most = found.most if np.isfinite(found.most) else None
    return {"wrong": found.count, "of": found.size, "most": most, "beyond": found.is_beyond}
