# SPDX-License-Identifier: Apache-2.0
"""Selects a run's cases: by name, by stratified sampling, and models in a folder."""

from __future__ import annotations

import argparse
import itertools
import random
import re
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from delegate.inspect import read_model
from tflite_opencl.cli.messages import printable
from tflite_opencl.conformance.cases import all_cases
from tflite_opencl.conformance.checks import NOT_REPEATED
from tflite_opencl.conformance.runner import Item
from tflite_opencl.console.errors import OneLineError, UsageError
from tflite_opencl.models.build import Case

QUICK = 250
# A folder's model, and a node of one: the naming scheme of Mesa's Teflon tests.
_MODEL, _NODE = "model/whole/", "Models.Op/"
# A model that LiteRT's accelerator test suite wrote: its number, the family, what it tests.
# Source: TestNames in litert/ats/common.h of LiteRT
_ATS = re.compile(r"ats_(\d+)_((?:CoreSingle|Single|Composite)Op)_(?:compile_|inference_)?(.+)")
_SPECIAL = re.compile("[,#]")  # in CSV and KTAP
# Behaviour cases run a model many times, and whole models have many nodes.
_PATIENCE = 5.0


def select(options: argparse.Namespace) -> list[Case]:
    """Return the cases selected by the command line.

    Raises: UsageError: no cases are left. OneLineError: the models' folder cannot be read.
    """
    cases = [case for case in all_cases() if options.heavy or not case.is_heavy]
    if options.models is not None:
        cases += _models(options.models)
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
    which, of = options.shard or (1, 1)
    # By the name's hash: a new case moves no other one to another shard.
    found = [
        case for case in cases
        if case in wanted and zlib.crc32(case.name.encode()) % of == which - 1
    ]  # fmt: skip
    if not found:
        raise UsageError(f"--shard {which}/{of} has none of the {len(chosen)} cases")
    return found


def sample(cases: Sequence[Case], count: int, seed: int) -> list[Case]:
    """Return a stratified sample: round robin over ops, and over types within an op."""
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


def _models(folder: str) -> list[Case]:
    """Return the cases of the .tflite files in a folder and its sub-folders.

    Characters unsafe for terminals, CSV, KTAP or UTF-8 are written as Python escapes.
    """
    try:
        inside = sorted(Path(folder).iterdir())
        below = [path for each in inside if each.is_dir() for path in sorted(each.iterdir())]
    except OSError as error:
        raise OneLineError(f"cannot read {error.filename}: {error.strerror}") from None
    named = [_whole(path) for path in inside]
    named += [("model", "node", f"{_NODE}{path.parent.name}_{path.stem}", path) for path in below]
    found = {}
    for op, kind, name, path in named:
        if path.suffix == ".tflite":
            shown = printable(_SPECIAL.sub(lambda found: f"\\x{ord(found[0]):02x}", name))
            shown = shown.encode("utf-8", "backslashreplace").decode()
            read = partial(read_model, path)
            found[shown] = Case(shown, op, kind, read, model=str(path.resolve()))
    if not found:
        raise UsageError(f"{folder} has no .tflite file")
    return [*found.values()]


def _whole(path: Path) -> tuple[str, str, str, Path]:
    """Return row, column, name and path of a model that is a case by itself."""
    if ats := _ATS.fullmatch(path.stem):
        number, family, what = ats.groups()
        return what, family, f"ats/{family}/{what}-{number}", path
    return "model", "whole", f"{_MODEL}{path.stem}", path


def item_of(case: Case) -> Item:
    """Return a case's item for a worker."""
    is_long = case.model is not None or case.check != "values" or case.is_heavy
    return Item(
        case.name,
        case.model,
        is_repeated=case.check not in NOT_REPEATED,
        patience=_PATIENCE if is_long else 1.0,
    )


def _in_turns(lists: Sequence[Sequence[Case]]) -> list[Case]:
    return [case for turn in itertools.zip_longest(*lists) for case in turn if case is not None]
