# SPDX-License-Identifier: Apache-2.0
"""Which cases a run has: by name, by a fair sample, and the models of a folder."""

from __future__ import annotations

import argparse
import itertools
import random
import re
from collections.abc import Sequence
from pathlib import Path

from delegate.inspect import Graph
from tflite_opencl.common.build import Case
from tflite_opencl.common.errors import OneLineError, UsageError
from tflite_opencl.common.words import printable
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.checks import NOT_REPEATED
from tflite_opencl.conformance.runner import Item

QUICK = 250
# A folder's model, and one of a node in a folder of its model: the name of Mesa's tests of Teflon.
_MODEL, _NODE = "model/whole/", "Models.Op/"
_SPECIAL = re.compile("[,#]")  # of CSV and KTAP
# A behaviour case runs a model many times, a whole model has many nodes.
_PATIENCE = 5.0


def select(options: argparse.Namespace) -> list[Case]:
    """Return the cases that the command line asks for.

    Raises: UsageError: nothing is left to run. OneLineError: the models' folder cannot be read.
    """
    cases = [case for case in all_cases() if options.heavy or not case.is_heavy]
    if options.models is not None:
        names = _models(options.models)
        if not names:
            raise UsageError(f"{options.models} has no .tflite file")
        cases += [
            Case(name, "model", "whole" if name.startswith(_MODEL) else "node", _no_graph)
            for name in names
        ]
    if options.filter is not None:
        pattern = re.compile(options.filter)
        cases = [case for case in cases if pattern.search(case.name)]
        if not cases:
            raise UsageError(f"no case matches {options.filter}")
    chosen = cases
    if options.quick:
        behaviour = [case for case in cases if case.check not in ("values", "reopen_100")]
        values = [case for case in cases if case.check == "values"]
        chosen = [*sample(values, QUICK, options.seed), *sample(behaviour, 40, options.seed)]
    elif options.sample is not None:
        chosen = sample(cases, options.sample, options.seed)
    wanted = set(chosen)
    return [case for case in cases if case in wanted]


def sample(cases: Sequence[Case], count: int, seed: int) -> list[Case]:
    """Return a fair sample: ops take turns, and in an op its types."""
    rng = random.Random(seed)
    by_op: dict[str, dict[str, list[Case]]] = {}
    for case in cases:
        by_op.setdefault(case.op, {}).setdefault(case.kind, []).append(case)
    turns = []
    for kinds in by_op.values():
        for found in kinds.values():
            rng.shuffle(found)
        columns = list(kinds.values())
        rng.shuffle(columns)
        turns.append(_in_turns(columns))
    return _in_turns(turns)[:count]


def _models(folder: str) -> dict[str, Path]:
    """Return the .tflite files of a folder, and of the folders in it, by the names of their cases.

    What a terminal, CSV, KTAP or UTF-8 would trip over is written as Python's escapes.
    """
    try:
        inside = sorted(Path(folder).iterdir())
        below = [path for each in inside if each.is_dir() for path in sorted(each.iterdir())]
    except OSError as error:
        raise OneLineError(f"cannot read {error.filename}: {error.strerror}") from None
    found = {_MODEL + path.stem: path for path in inside if path.suffix == ".tflite"}
    found |= {
        f"{_NODE}{path.parent.name}_{path.stem}": path for path in below if path.suffix == ".tflite"
    }
    return {_shown(name): path for name, path in found.items()}


def _shown(name: str) -> str:
    def escape(found: re.Match[str]) -> str:
        return f"\\x{ord(found[0]):02x}"

    return printable(_SPECIAL.sub(escape, name)).encode("utf-8", "backslashreplace").decode()


def item_of(case: Case, folder: str | None) -> Item:
    """Return what a worker is told of a case."""
    model = None
    if case.name.startswith((_MODEL, _NODE)) and folder is not None:
        model = str(_models(folder)[case.name].resolve())
    is_long = model is not None or case.check != "values" or case.is_heavy
    return Item(
        case.name,
        model,
        is_repeated=case.check not in NOT_REPEATED,
        patience=_PATIENCE if is_long else 1.0,
    )


def _no_graph() -> Graph:
    raise ValueError("a model of a file is read by the worker")


def _in_turns(lists: Sequence[Sequence[Case]]) -> list[Case]:
    return [case for turn in itertools.zip_longest(*lists) for case in turn if case is not None]
