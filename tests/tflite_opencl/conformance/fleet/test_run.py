# SPDX-License-Identifier: Apache-2.0
"""`tflite-delegate-test --scheduler` with processes as boards."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

pytest.importorskip("distributed")

import distributed

from tests.support.cluster import workers
from tests.support.fleet import select_liar
from tests.support.tiers import slow
from tests.support.without_tflite import needs_tflite
from tflite_opencl.conformance.command import main

pytestmark = [slow, needs_tflite]

ADD, CONV = "add/int8/1x7x5x3", "conv_2d/int8/in7x5x3-k3x3-out8-same"
TWO = f"^({ADD}|{CONV})$"
DELEGATE = ("--delegate", "python:tests.support.fleet:board_liar", "--filter", TWO)


def test_faulty_board_stands_out_and_run_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with workers(2) as cluster, distributed.Client(cluster) as client:
        where = ("--scheduler", cluster.scheduler_address)
        chosen = {0: "pass_through", 1: "off_by_one"}
        for worker in cluster.workers.values():
            at = [worker.worker_address]
            client.run(select_liar, chosen[worker.name], workers=at)
        assert main([*DELEGATE, *where, "--json", "fleet.json"]) == 1
        out = capsys.readouterr().out
        assert f"DIFFERS {ADD}: Pass on 0; Fail on 1" in out
        assert json.loads(Path("fleet.json").read_text())["different"][ADD] == {
            "0": "Pass", "1": "Fail",
        }  # fmt: skip
        details = Path("delegate-test-results/0/details.jsonl")
        details.write_text(details.read_text().splitlines(keepends=True)[0])
        assert main([*DELEGATE, *where, "--resume"]) == 1
    with open("delegate-test-results/boards.csv") as file:
        rows = {row["case"]: row for row in csv.DictReader(file)}
    assert {row["0"] for row in rows.values()} == {"Pass"}
    assert rows[ADD]["1"] == "Fail"
    assert Path("delegate-test-results/0/results.csv").read_text().count("\n") == 2


def test_local_flags_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*DELEGATE, "--scheduler", "local:2", "--junit", "-"]) == 64
    assert "--junit is of one board" in capsys.readouterr().err
