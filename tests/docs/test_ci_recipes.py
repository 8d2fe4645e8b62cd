# SPDX-License-Identifier: Apache-2.0
"""docs/ci: the recipes' commands and schemas, and a run of GitLab's command."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiers import slow
from tflite_opencl.conformance import results
from tflite_opencl.conformance.flags import parse

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "docs/ci"
NAME = "tflite-delegate-test"


def loaded(name: str) -> Any:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return yaml.safe_load((RECIPES / name).read_text())


def gitlab_command() -> str:
    (line,) = loaded("gitlab-ci.yml")[f".{NAME}"]["script"]
    return str(line)


def flags_of(command: str) -> list[str]:
    """Return the flags of the suite's command, with 1/4 for a shard and 1 for other variables."""
    command = re.sub(r"\$\(.*?\)|\|\|.*", "", command)
    command = re.sub(r"\$CI_NODE_INDEX/\$CI_NODE_TOTAL", "1/4", command)
    words = shlex.split(re.sub(r"\$\w+", "1", command).replace("ORIGIN:", "origin:"))
    return words[words.index(NAME) + 1 :]


def test_commands_have_existing_flags() -> None:
    page = (RECIPES / "README.md").read_text().replace("\\\n", "")
    commands = [line for line in page.splitlines() if line.startswith(f"{NAME} ")]
    commands += [gitlab_command(), *loaded("lava.yaml")["run"]["steps"]]
    found = [parse(flags_of(command)) for command in commands if NAME in command.split()]
    assert len(found) == 5
    assert all(each.minutes or each.compile_only for each in found)


def test_lava_definition() -> None:
    content = loaded("lava.yaml")
    assert content["metadata"]["format"] == "Lava-Test Test Definition 1.0"
    assert {"name", "description"} <= {*content["metadata"]}
    used = {word for step in content["run"]["steps"] for word in re.findall(r"\$([A-Z_]+)", step)}
    assert used <= {*content["params"]}


def test_expectations_are_read() -> None:
    names = [str(RECIPES / f"llvmpipe-{name}.txt") for name in ("fails", "skips", "flakes")]
    known = results.read(names[0], names[1:2], names[2:], True)
    assert not known.is_skipped("add/int8/1x7x5x3")


@slow
@pytest.mark.device
def test_gitlab_command_runs(tmp_path: Path) -> None:
    job = loaded("gitlab-ci.yml")
    variables = job[f".{NAME}"]["variables"] | job[f"{NAME}-llvmpipe"]["variables"]
    shim = tmp_path / NAME
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m tflite_opencl.conformance "$@"\n')
    shim.chmod(0o755)
    environment = {
        **os.environ, **variables, "EXPECTATIONS": str(RECIPES), "MINUTES": "0.25",
        "CI_NODE_INDEX": "2", "CI_NODE_TOTAL": "4", "PYTHONPATH": str(ROOT),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
    }  # fmt: skip

    def run() -> dict[str, Any]:
        done = subprocess.run(
            ["sh", "-euc", gitlab_command()], cwd=tmp_path, env=environment, text=True,
            capture_output=True, timeout=200, check=False,
        )  # fmt: skip
        if done.returncode == 77:
            pytest.skip(done.stderr)
        assert done.returncode == 0, done.stdout + done.stderr
        return dict(json.loads((tmp_path / "results/run.json").read_text()))

    first = run()
    assert first["device"].startswith("llvmpipe")
    assert first["not_run"] > 0
    assert first["cases"][0]["name"].startswith("frontend/")
    # What failed in the run before comes first.
    later = first["cases"][5] | {"result": "Fail"}
    (tmp_path / "before").mkdir()
    (tmp_path / "before/llvmpipe-2.json").write_text(json.dumps(first | {"cases": [later]}))
    assert run()["cases"][0]["name"] == later["name"]
