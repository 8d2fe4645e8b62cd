# SPDX-License-Identifier: Apache-2.0
"""Records of a comparison: times, paths and changes."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tflite_opencl.cli.outputs import as_json
from tflite_opencl.compare.records import (
    ModelResult,
    PathResult,
    Report,
    RunPath,
    load,
    paths_of,
    timing_of,
)
from tflite_opencl.compare.text import changes_text, markdown_of, text_of
from tflite_opencl.console.errors import CommandError

STEADY = timing_of([1.0, 1.0, 1.01, 1.01], 1.0)
WILD = timing_of([0.5, 1.0, 1.5, 2.0], 1.0)
PATH = PathResult("opencl", device="a GPU", timing=STEADY, taken=3, nodes=3, quanta=0)


def report_of(path: PathResult, **machine: str) -> Report:
    return Report(machine, [ModelResult("m.tflite", "digest", "random input", [path])])


def test_figures_of_runs() -> None:
    timing = timing_of([4.0, 1.0, 2.0, 3.0, 10.0], 1.5)
    assert (timing.runs, timing.min_ms, timing.median_ms, timing.average_ms) == (5, 1, 3, 4)
    assert timing.p90_ms == pytest.approx(7.6)
    assert timing.quartiles_ms == (2.0, 4.0)
    assert timing.deviation_ms == pytest.approx(10**0.5)
    assert timing.spread == pytest.approx(2 / 3)
    assert (timing.cpu_load, timing.gpu_load) == (1.5, None)
    assert timing_of([1.0], 1.5, 0.25).gpu_load == 0.25


def test_paths() -> None:
    text = (
        "cpu, reference,builtin,opencl,opencl:1,opencl:mali,external:/a/b.so,external:c.so:k:v;l:w,"
        "chain:c.so:k:v"
    )
    assert [(p.kind, p.device, p.library, dict(p.options)) for p in paths_of(text)] == [
        ("cpu", None, "", {}),
        ("reference", None, "", {}),
        ("builtin", None, "", {}),
        ("opencl", None, "", {}),
        ("opencl", "1", "", {}),
        ("opencl", "mali", "", {}),
        ("external", None, "/a/b.so", {}),
        ("external", None, "c.so", {"k": "v", "l": "w"}),
        ("chain", None, "c.so", {"k": "v"}),
    ]
    assert paths_of("external:x.so.2:a:b")[0] == RunPath(
        "external:x.so.2:a:b", "external", None, "x.so.2", {"a": "b"}
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no path"),
        ("gpu", "'gpu' is no path"),
        ("opencl:", "'opencl:' is no path"),
        ("cpu:0", "'cpu:0' is no path"),
        ("cpu,cpu", "named twice"),
        ("external", "is not external:PATH.so"),
        ("chain:x", "is not chain:PATH.so"),
        ("external:x.so:novalue", "'novalue' is not key:value"),
    ],
)
def test_invalid_paths(text: str, reason: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=reason):
        paths_of(text)


def test_change_within_spread_is_not_shown() -> None:
    slower = replace(PATH, timing=timing_of([1.3, 1.3, 1.31, 1.31], 1.0))
    text = changes_text(report_of(PATH), report_of(slower), 100)
    assert re.search(r"m\.tflite +opencl +1\.005 +1\.305 +\+29\.9% +1\.0%", text)
    assert "nothing can be told" not in text
    wild = replace(PATH, timing=WILD)
    text = changes_text(report_of(PATH), report_of(wild), 100)
    assert "WARNING: m.tflite, opencl: the spread of the runs is larger than the change" in text


def test_other_changes_are_shown() -> None:
    other = replace(PATH, taken=2, quanta=1)
    text = changes_text(report_of(PATH, CPU="old"), report_of(other, CPU="new"), 100)
    assert "m.tflite, opencl: nodes taken: 3 before, 2 now" in text
    assert "m.tflite, opencl: quanta off the reference: 0 before, 1 now" in text
    assert "CPU: old before, new now" in text


def test_other_model_with_same_name_is_a_warning() -> None:
    old = report_of(PATH)
    new = Report({}, [replace(old.models[0], digest="another", input="p.png")])
    text = changes_text(old, new, 100)
    assert "WARNING: m.tflite, opencl: the model's file is another one" in text
    assert "the input was random input, and is p.png" in text


def test_no_common_rows_is_a_warning() -> None:
    text = changes_text(report_of(PATH), report_of(replace(PATH, path="cpu")), 100)
    assert text == "WARNING: no path was timed both before and now"


def test_tables() -> None:
    path = replace(PATH, partitions=2, joules=0.25, peak_bytes=2**20, top="0.5: 1 a|b")
    text = text_of(report_of(path), 100)
    for cell in ("3 of 3, 2 parts", "0.25", "a GPU", "1.01"):
        assert cell in text
    assert "energy" not in text_of(report_of(PATH), 100)
    assert r"0.5: 1 a\|b" in markdown_of(report_of(path))


def test_incomparable_results_have_reason() -> None:
    why = "the reference kernels cannot run this model: no kernel"
    path = replace(PATH, quanta=None, no_difference=why)
    assert f"opencl: not compared: {why}" in text_of(report_of(path), 100)


@pytest.mark.parametrize(
    ("name", "value"),
    [("model", 1), ("device", None), ("nodes", "31"), ("taken", []), ("timing", 3)],
)
def test_stored_result_with_wrong_types_is_refused(
    tmp_path: Path, name: str, value: object
) -> None:
    report = json.loads(as_json(asdict(report_of(PATH))))
    file = tmp_path / "kept.json"
    file.write_text(json.dumps(report))
    assert load(str(file)).models[0].paths == [PATH]
    (model,) = report["models"]
    (model if name in model else model["paths"][0])[name] = value
    file.write_text(json.dumps(report))
    with pytest.raises(CommandError, match="is not what compare --json writes"):
        load(str(file))
