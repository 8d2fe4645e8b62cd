# SPDX-License-Identifier: Apache-2.0
"""docs/boards: the script on this machine, the schemas of CI jobs, a page for each board."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from delegate.inspect import device_profile_names
from label_image.flags import parse
from tests.support.tiers import slow
from tflite_opencl.boards.advice import FAMILIES
from tflite_opencl.command import parser

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "docs/boards"
UNITS = ROOT / "assets/systemd"
# A page for each board; boards/test_compilers.py has the generated one.
NO_BOARDS = ("README.md", "camera.md", "compilers.md")
PAGES = sorted(path for path in RECIPES.glob("*.md") if path.name not in NO_BOARDS)


def run(script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    venv = Path(sys.executable).parents[1]
    return subprocess.run(
        [str(RECIPES / script), *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "VENV": str(venv), **environment},
        check=False,
    )


def drivers(folder: Path, *names: str) -> dict[str, str]:
    """Return the variable that selects these ICD files of Debian.

    The script starts a process for each driver; tests/tflite_opencl/test_info.py uses all.
    """
    vendors = folder / "vendors"
    vendors.mkdir()
    for name in names:
        (vendors / name).write_text(Path("/etc/OpenCL/vendors", name).read_text())
    return {"OCL_ICD_VENDORS": str(vendors)}


def pocl(folder: Path) -> dict[str, str]:
    """Return the variable that selects PoCL, or skip the test."""
    try:
        return drivers(folder, "pocl.icd")
    except FileNotFoundError:
        pytest.skip("no PoCL here")


@slow
@pytest.mark.device
def test_script_runs_on_this_machine(tmp_path: Path) -> None:
    results = tmp_path / "results"
    tests = "tests/integration/test_boards.py -k AVERAGE_POOL_2D"
    done = run("on-board", "pocl", str(results), BOARD_TESTS=tests, **pocl(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    signals = re.findall(r"TEST_CASE_ID=(\w+) RESULT=(\w+)", done.stdout)
    assert signals == [("install", "pass"), ("info", "pass"), ("boards", "pass")]
    assert "2 passed" in done.stdout
    assert (results / "info.json").read_text().startswith("{")
    assert "<testsuite " in (results / "boards.xml").read_text()


@slow
def test_failed_test_fails_script(tmp_path: Path) -> None:
    broken = tmp_path / "test_broken.py"
    broken.write_text("def test_broken() -> None:\n    raise AssertionError('planted')\n")
    options = "def pytest_addoption(parser):\n    parser.addoption('--full', action='store_true')\n"
    (tmp_path / "conftest.py").write_text(options)
    results = str(tmp_path / "results")
    done = run("on-board", "pocl", results, BOARD_TESTS=str(broken), **pocl(tmp_path))
    assert done.returncode == 1
    assert "TEST_CASE_ID=boards RESULT=fail" in done.stdout
    assert "planted" in done.stdout


@slow
def test_missing_parts_of_board_are_named(tmp_path: Path) -> None:
    if Path("/proc/device-tree").exists():
        pytest.skip("this is a board")
    done = run("on-board", "vivante", str(tmp_path), **drivers(tmp_path))
    assert done.returncode == 77
    assert "vivante: a vivante,gc node is not in the device tree\n" in done.stdout
    assert "TEST_CASE_ID=boards RESULT=skip" in done.stdout


def test_unknown_family_is_an_error(tmp_path: Path) -> None:
    done = run("on-board", "mali", str(tmp_path))
    assert done.returncode == 1
    assert "no family 'mali'" in done.stderr


def test_jobs_name_existing_families_and_profiles() -> None:
    families = {each.name for each in FAMILIES}
    for name in ("lava-job.yaml", "gitlab-ci.yml"):
        named = set(re.findall(r"FAMILY: (\w+)", (RECIPES / name).read_text()))
        assert named
        assert named <= families
    table = (RECIPES / "README.md").read_text()
    profiles = set(re.findall(r"`((?:etnaviv|panfrost|panthor|freedreno)-\w+|v3d)`", table))
    assert profiles == {*device_profile_names()}


def test_pages_are_complete_and_listed() -> None:
    table = (RECIPES / "README.md").read_text()
    for path in PAGES:
        text = path.read_text()
        for part in ("Hardware.", "Upstream.", "Commands.", "Expected.", "Known limits."):
            assert f"**{part}**" in text, f"{path.name} lacks {part}"
        assert f"({path.name})" in table


@pytest.mark.parametrize("folder", ["boards", "ci"])
def test_gitlab_schema_accepts_jobs(folder: str) -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci"]
    path = str(ROOT / "docs" / folder / "gitlab-ci.yml")
    done = subprocess.run([*command, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_lava_schema_accepts_job() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    schemas = pytest.importorskip("lava_common.schemas", reason="lava-common is not installed")
    schemas.validate(yaml.safe_load((RECIPES / "lava-job.yaml").read_text()), strict=True)


@pytest.mark.parametrize("name", ["tflite-opencl.service", "label-image@.service"])
def test_units_are_valid(name: str, tmp_path: Path) -> None:
    if not (tool := shutil.which("systemd-analyze")):
        pytest.skip("no systemd-analyze")
    text = (UNITS / name).read_text()
    # systemd 252's verify searches no ExecSearchPath.
    start = re.compile(r"^ExecStart=(?!/)\S+", re.MULTILINE)
    unit = tmp_path / name.replace("@", "@door")
    unit.write_text(start.sub("ExecStart=/bin/true", text))
    result = subprocess.run([tool, "verify", str(unit)], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_arguments_of_units_are_valid() -> None:
    variables = dict(re.findall(r"^(\w+)=(.*)$", (UNITS / "tflite-opencl.env").read_text(), re.M))
    units = [unit.read_text() for unit in UNITS.glob("*.service")]
    names = {name for text in units for name in re.findall(r"\$(\w+)", text)}
    assert names == {*variables, "MAINPID", "LABEL_IMAGE_ARGUMENTS"} - {"RUSTICL_ENABLE"}
    assert variables["RUSTICL_ENABLE"] in {family.rusticl for family in FAMILIES}
    given = ["serve", *shlex.split(variables["SERVE_ARGUMENTS"])]
    assert parser().parse(given).fallback == "cpu"
    page = (RECIPES / "camera.md").read_text()
    (arguments,) = re.findall(r"LABEL_IMAGE_ARGUMENTS=(.*?)'", page)
    settings = parse(["--use_gpu", *shlex.split(arguments)])
    assert settings.video == "/dev/video0"


def test_page_of_the_camera_is_short() -> None:
    assert len((RECIPES / "camera.md").read_text().split()) <= 600
