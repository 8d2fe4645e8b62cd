# SPDX-License-Identifier: Apache-2.0
"""Shards of the cases, and the names of models in a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tflite_opencl.conformance import selection
from tflite_opencl.conformance.cases import binary
from tflite_opencl.conformance.flags import parse
from tflite_opencl.conformance.selection import select
from tflite_opencl.models.build import Case, graph

CASES = [*binary.cases()]


@pytest.fixture(autouse=True)
def few_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "all_cases", lambda: iter(CASES))


def names(*flags: str) -> list[str]:
    return [case.name for case in select(parse(flags))]


def test_shards_are_all_cases_and_each_in_one() -> None:
    parts = [names("--shard", f"{number}/3") for number in (1, 2, 3)]
    every = names()
    assert sorted(name for part in parts for name in part) == sorted(every)
    assert all(len(every) / 6 < len(part) < len(every) / 2 for part in parts)


def test_new_case_moves_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [names("--shard", f"{number}/2") for number in (1, 2)]
    new = Case("add/int8/new", "ADD", "int8", lambda: graph([]))
    monkeypatch.setattr(selection, "all_cases", lambda: iter([new, *CASES]))
    after = [names("--shard", f"{number}/2") for number in (1, 2)]
    assert [[name for name in part if name != new.name] for part in after] == before
    assert sum(new.name in part for part in after) == 1


def test_models_of_accelerator_test_suite(tmp_path: Path) -> None:
    stems = {
        "ats_12_CoreSingleOp_compile_BatchMatmul": "ats/CoreSingleOp/BatchMatmul-12",
        "ats_3_SingleOp_inference_Unary_Relu": "ats/SingleOp/Unary_Relu-3",
        "ats_40_CompositeOp_RmsNorm,#1": "ats/CompositeOp/RmsNorm\\x2c\\x231-40",
        "ats_user_model": "model/whole/ats_user_model",
        "mobilenet": "model/whole/mobilenet",
    }
    for stem in stems:
        (tmp_path / f"{stem}.tflite").write_bytes(b"")
    (tmp_path / "report.csv").write_text("")
    found = select(parse(["--models", str(tmp_path), "--filter", "^(ats|model)/"]))
    assert {case.name for case in found} == {*stems.values()}
    rows = {case.name: (case.op, case.kind) for case in found}
    assert rows["ats/CoreSingleOp/BatchMatmul-12"] == ("BatchMatmul", "CoreSingleOp")
    assert rows["model/whole/mobilenet"] == ("model", "whole")
    assert Path(found[0].model or "").parent == tmp_path
