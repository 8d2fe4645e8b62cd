# SPDX-License-Identifier: Apache-2.0
"""The page of reported faults and delegates, made of the JSON of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tflite_opencl.conformance.command import main
from tflite_opencl.conformance.corpus import Corpus, corpus, faults, html, markdown

ADDED = ["reported/int8/add-output_and_read", "reported/float32/add-output_and_read"]
RELU = "reported/int8/relu-in5"


def run(folder: Path, name: str, date: str, **results: str) -> str:
    """Write a run of these cases, each "Result" or "Result by quanta"; return the path."""
    names = {"added": ADDED[0], "added_float": ADDED[1], "relu": RELU}
    rows: list[dict[str, Any]] = []
    for key, words in results.items():
        result, _, quanta = words.partition(" by ")
        case = names.get(key, key)
        kind = case.split("/")[1]
        row = {"name": case, "result": result, "quanta": float(quanta or 0), "type": kind}
        rows.append(row)
    path = folder / f"{name}-{date}.json"
    about = {"delegate": name, "device": "a device", "runtime": "litert", "begun": date}
    path.write_text(json.dumps({**about, "cases": rows}))
    return str(path)


def cell(made: Corpus, report: str, column: int = 0) -> tuple[str, str]:
    (cells,) = (cells for fault, cells in made.rows if fault.report.endswith(report))
    return cells[column].kind, cells[column].words


def test_cells(tmp_path: Path) -> None:
    several = {
        "a": {"added": "Pass", "added_float": "Fail by 7", "relu": "Fail by 1"},
        "b": {"added": "NotDelegated", "added_float": "Pass", "relu": "Crash"},
        "c": {"added": "NotDelegated", "added_float": "NotDelegated", "relu": "Skip"},
        "d": {"added": "Pass", "added_float": "Pass", "add/int8/1x7x5x3": "Fail by 3"},
        "e": {"added_float": "Fail by 1"},
    }
    made = corpus(run(tmp_path, name, "2026-11-29", **each) for name, each in several.items())
    date = ", 2026-11-29"
    assert [cell(made, "LiteRT#8599", column) for column in range(5)] == [
        ("wrong", f"1 of 2 wrong, by up to 7{date}"),
        ("right", f"right, 1 of 2 refused{date}"),
        ("refused", f"refused{date}"),
        ("right", f"right{date}"),
        ("wrong", f"1 of 1 wrong, by up to 1{date}"),
    ]
    assert [cell(made, "executorch#10961", column) for column in range(4)] == [
        ("right", f"rounds otherwise: 1 of 1 differ by 1{date}"),
        ("wrong", f"1 of 1 crash or hang{date}"),
        ("none", ""),
        ("none", ""),
    ]
    assert [made.shown(column) for column in range(4)] == [
        "1 of 2 faults", "1 of 2 faults", "0 of 1 faults", "0 of 1 faults",
    ]  # fmt: skip


def test_newest_run_counts_and_the_one_before_is_told(tmp_path: Path) -> None:
    paths = [
        run(tmp_path, "a", "2026-11-29", relu="Pass", added="Fail by 9"),
        run(tmp_path, "a", "2026-10-01", relu="Fail by 5"),
        run(tmp_path, "a", "2026-11-15", relu="Pass"),
    ]
    made = corpus(paths)
    (column,) = made.columns
    assert column.dates == "2026-10-01 to 2026-11-29"
    before = "(before: 1 of 1 wrong, by up to 5, 2026-10-01)"
    assert cell(made, "executorch#10961") == ("right", f"right, 2026-11-29 {before}")
    assert cell(made, "LiteRT#8599") == ("wrong", "1 of 1 wrong, by up to 9, 2026-11-29")


def test_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("jinja2")
    path = run(tmp_path, "a|<b>", "2026-11-29", relu="Crash")
    made = corpus([path])
    lines = markdown(made).splitlines()
    assert f"- A: {made.columns[0].name}; 2026-11-29: 1 of 1 faults" in lines
    rows = [line for line in lines if line.startswith("| ")]
    assert len(rows) == 1 + len(faults())
    assert {line.count("|") for line in rows} == {5}
    assert "a|&lt;b&gt;" in html(made)
    assert main(["--corpus", path]) == 0
    assert capsys.readouterr().out == markdown(made)
    assert main(["--corpus", path, "--html", str(tmp_path / "page.html")]) == 0
    assert (tmp_path / "page.html").read_text() == html(made)
    assert main(["--corpus", str(tmp_path / "none.json")]) == 255
    assert capsys.readouterr().err.startswith("ERROR: cannot read ")


def test_faults_have_report_and_cases() -> None:
    found = faults()
    assert len(found) > 40
    assert all(fault.report and fault.text and fault.cases for fault in found)
    assert {name.split("/")[0] for fault in found for name in fault.cases} == {
        "frontend", "reported",
    }  # fmt: skip


def test_reports_are_listed_without_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--corpus"]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.startswith("| ")]
    assert len(rows) == 1 + len(faults())
    relu = "| pytorch/executorch#10961 | values of an int8 RELU are lost | 1 |"
    assert relu in rows
    page = (Path(__file__).parents[3] / "docs" / "conformance.md").read_text()
    assert f" {len(faults())} reported faults " in page
