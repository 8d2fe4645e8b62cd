# SPDX-License-Identifier: Apache-2.0
"""Bans, listed and lifted by `tflite-opencl info`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from delegate.guard import cache
from delegate.guard.children.records import Records
from delegate.guard.children.trials import BUILD, Trial
from tflite_opencl.command import main
from tflite_opencl.info import bans_text


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path))


def test_bans_are_listed_and_lifted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["info", "--bans"]) == 0
    assert "nothing is left out" in capsys.readouterr().out
    identity = "PoCL|OpenCL 3.0 PoCL 3.1|a CPU|3.1|small"
    Records(identity).ban(Trial(BUILD, "conv_2d", "a1"), "died with SIGABRT: Cannot select")
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["info", "--bans"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in ("a CPU (PoCL, 3.1, small)", "to build conv_2d.cl", "SIGABRT: Cannot select"):
        assert words in text
    assert "another environment" not in text
    monkeypatch.setenv("PATH", "/elsewhere")
    assert main(["info", "--bans"]) == 0
    assert "in another environment alone" in " ".join(capsys.readouterr().out.split())
    assert main(["info", "--bans", "--json", "-"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["bans"]
    assert (result["build"], result["holds_here"]) == ("conv_2d-a1", False)
    assert result["until"] - result["since"] == 7 * 24 * 3600
    assert main(["info", "--lift_bans"]) == 0
    assert capsys.readouterr().out.startswith("1 ban is lifted: ")
    assert bans_text((), 80).startswith("nothing is left out")
