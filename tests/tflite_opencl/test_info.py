# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl info`: text, JSON, errors and crashing drivers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from delegate import DeviceInfo, NoDeviceError, list_devices
from delegate.inspect import Icd, device_limits, list_icds, read_device_profile
from tests.support.boards import BOARDS
from tests.support.tiers import slow
from tflite_opencl.boards import drivers
from tflite_opencl.boards import facts as board_facts
from tflite_opencl.boards.board import ICD_FOLDER, read_board
from tflite_opencl.command import main


@pytest.mark.parametrize("name", BOARDS)
def test_recorded_board(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = BOARDS[name].write(tmp_path)
    assert main(["info", "--root", str(root)]) == 0
    text = capsys.readouterr().out
    assert f"  model     {BOARDS[name].model}\n" in text
    for node in BOARDS[name].nodes:
        assert f"  {node.path} " in text
    assert "not asked: these are another machine's files" in text
    assert "What to do next\n  1.    " in text
    assert main(["info", "--json", "-", "--root", str(root)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["board"]["compatible"] == list(BOARDS[name].compatible)
    assert facts["next_steps"]


@pytest.mark.parametrize("columns", [20, 40, 59])
def test_narrow_terminal_shows_every_value(
    columns: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    board = next(iter(BOARDS.values()))
    command = ["info", "--root", str(board.write(tmp_path))]
    monkeypatch.setenv("COLUMNS", "400")
    assert main(command) == 0
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main(command) == 0
    narrow = capsys.readouterr().out
    # The command at the end is one line, which can be copied.
    assert max(map(len, narrow.partition("Type this\n")[0].splitlines())) <= columns
    # Nothing is omitted or abbreviated.
    assert "".join(narrow.split()) == "".join(wide.split())


def test_variable_that_hides_all_drivers_is_first_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", "/nowhere")
    nothing = drivers.LoadedIcd((), None)
    monkeypatch.setattr(drivers, "ask_icd", lambda path: nothing)
    monkeypatch.setattr(drivers, "ask_all", lambda **_: nothing)
    monkeypatch.setattr(drivers, "ask_devices", lambda: ((), "no OpenCL platform was found"))
    assert main(["info"]) == 0
    last = capsys.readouterr().out.partition("What to do next\n")[2]
    meant = "1. OCL_ICD_VENDORS names /nowhere, which is not there: unset it, and look again"
    assert " ".join(last.split()).startswith(meant)


def test_ignored_library_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    library, file = tmp_path / "libvendorcl.so", tmp_path / "vendor.icd"
    library.write_bytes(b"\x7fELF\0clGetPlatformIDs\0")
    file.write_text(f"{library}\n")
    monkeypatch.setattr(board_facts, "list_icds", lambda: [Icd(str(file), str(library))])
    nothing = drivers.LoadedIcd((), None, library=str(library))
    monkeypatch.setattr(drivers, "ask_icd", lambda path: nothing)
    monkeypatch.setattr(drivers, "ask_all", lambda **_: nothing)
    monkeypatch.setattr(drivers, "ask_devices", lambda: ((), "no OpenCL platform was found"))
    assert main(["info"]) == 0
    output = "".join(capsys.readouterr().out.split())
    assert f"{library}:itgivesnoplatform:ithasnoclIcdGetPlatformIDsKHR" in output


def test_loader_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = drivers.LoadedIcd((), None)
    monkeypatch.setattr(drivers, "ask_icd", lambda path: nothing)
    monkeypatch.setattr(drivers, "ask_devices", lambda: ((), "no OpenCL platform was found"))
    monkeypatch.setattr(drivers, "ask_all", lambda **_: nothing)
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setenv("OCL_ICD_FILENAMES", "libthere-is-none.so")
    assert main(["info"]) == 0
    rows = dict(re.findall(r"^  (\S[^ ]*(?: [^ ]+)*?) {2,}(.*\S)", capsys.readouterr().out, re.M))
    mapped = Path("/proc/self/maps").read_text().split()
    assert rows["loader"] in mapped
    is_read = b"OCL_ICD_FILENAMES" in Path(rows["loader"]).read_bytes()
    unread = "" if is_read else " (this loader does not read it)"
    assert rows["OCL_ICD_FILENAMES"] == f"libthere-is-none.so{unread}"


@cache
def platforms_and_devices() -> tuple[Any, ...]:
    """Return the children's answers for this machine and all devices."""
    board = read_board()
    entries = {icd.path: Icd(icd.path, icd.library) for icd in board.icds}
    entries |= {icd.path: icd for icd in list_icds()}
    icds = {path: drivers.ask_icd(icd) for path, icd in entries.items()}
    return icds, drivers.ask_all(), drivers.ask_devices()


@pytest.fixture
def cached_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reuse the children's answers for everything but the command's device."""
    icds, platforms, devices = platforms_and_devices()
    monkeypatch.setattr(drivers, "ask_icd", lambda icd: icds[icd.path])
    monkeypatch.setattr(drivers, "ask_all", lambda **_: platforms)
    monkeypatch.setattr(drivers, "ask_devices", lambda: devices)


@slow
@pytest.mark.usefixtures("cached_queries")
def test_this_machine(device: DeviceInfo, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json", "-", "--device", str(device.index)]) == 0
    facts = json.loads(capsys.readouterr().out)
    (result,) = facts["devices"]
    assert DeviceInfo(**result["info"]) == device
    assert result["failure"] is None
    assert result["limits"]["max_alloc_bytes"] > 0
    assert all(value > 0 for value in result["rates"].values())
    assert facts["next_steps"][-1] == (
        f"run: label_image --use_gpu --device {device.index} --image picture.jpg"
    )
    platforms = [platform["name"] for platform in facts["platforms"]["platforms"]]
    assert device.platform in platforms
    # Each driver's ICD file names only its platform.
    for path, icd in facts["icds"].items():
        assert path.endswith(".icd")
        assert icd["failure"] is None
        assert {platform["name"] for platform in icd["platforms"]} <= {*platforms}


@slow
@pytest.mark.usefixtures("cached_queries")
def test_crashing_library_is_named_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = Icd("/nowhere/bad.icd", "libbad.so")
    monkeypatch.setattr(board_facts, "list_icds", lambda: [bad])
    died = drivers.LoadedIcd((), "it died with SIGABRT: bad chip")
    monkeypatch.setattr(drivers, "ask_icd", lambda path: died)
    monkeypatch.setattr(drivers, "ask_devices", lambda: ((), "none"))
    assert main(["info", "--json", "-"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["next_steps"][0] == (
        "remove /nowhere/bad.icd, or mend libbad.so: asked alone, it died with SIGABRT: bad chip"
    )
    assert main(["info"]) == 0
    assert "/nowhere/bad.icd" in capsys.readouterr().out.split("What to do next")[0]


@slow
@pytest.mark.device
@pytest.mark.usefixtures("cached_queries")
def test_profile_of_real_device(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        device, *_ = list_devices()
    except NoDeviceError as error:
        pytest.skip(str(error))
    path = tmp_path / "mine.toml"
    command = ["info", "--device", str(device.index), "--write_profile", str(path)]
    assert main(command) == 0
    text = capsys.readouterr().out
    # The line is wrapped if the folder's name is long.
    assert f"label_image--device_profile{path}" in "".join(text.split())
    assert "  self-test" in text
    assert "  multiply-adds" in text
    profile = read_device_profile(str(path))
    assert profile.device_type == device.type
    assert device.name in profile.description
    content = path.read_text()
    assert content.count("by clGetDeviceInfo") == 10
    assert "# proven by self-tests" in content


@slow
@pytest.mark.device
@pytest.mark.usefixtures("cached_queries")
def test_profile_of_device_that_fails_self_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        device, *_ = list_devices()
    except NoDeviceError as error:
        pytest.skip(str(error))
    limits = device_limits(device)
    failing = drivers.SurveyedDevice(device, limits, (), None, "it died\n\x1b[31m: bad chip")
    monkeypatch.setattr(drivers, "ask_device", lambda info: failing)
    path = tmp_path / "mine.toml"
    command = ["info", "--device", str(device.index), "--write_profile", str(path)]
    assert main(command) == 0
    capsys.readouterr()
    profile = read_device_profile(str(path))
    assert profile.max_work_group_size == limits.max_work_group_size
    assert profile.isa == ()
    assert "isa = []  # nothing is proven: it died\\n\\x1b[31m: bad chip\n" in path.read_text()
    silent = replace(failing, limits=None)
    monkeypatch.setattr(drivers, "ask_device", lambda info: silent)
    assert main(command) == 255
    assert "no device here tells its limits" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["info", "--root", "/nonexistent"], 255, "ERROR: --root /nonexistent: there is no such"),
        (["info", "--write_profile", "x.json"], 64, "its name must end in .toml"),
        (["info", "--write_profile", "x.toml", "--root", "tests"], 64, "does nothing with --root"),
        (["info", "--device", "no such device"], 2, "no device matches 'no such device'; there"),
        (["info", "--speed"], 64, "unrecognized arguments: --speed"),
        (["nothing"], 64, "invalid choice"),
        ([], 64, "SUBCOMMAND"),
    ],
)
def test_errors(
    arguments: list[str],
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drivers, "ask_icd", lambda path: drivers.LoadedIcd((), None))
    assert main(arguments) == code
    output = capsys.readouterr()
    assert words in output.err
    assert output.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["tests"]


def test_help_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--help"]) == 0
    assert "--write_profile" in capsys.readouterr().out


def test_crashing_driver_does_not_affect_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import os, sys; sys.stderr.write('bad chip\\n'); sys.stderr.flush(); os.abort()"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {drivers.sys.executable} -c "{code}"\n')
    python.chmod(0o755)
    monkeypatch.setattr(drivers.sys, "executable", str(python))
    output = drivers.ask_icd(Icd("bad.icd", "libbad.so"))
    assert (output.platforms, output.failure) == ((), "it died with SIGABRT: bad chip")
    assert drivers.ask_devices() == ((), "it died with SIGABRT: bad chip")


def test_hanging_driver_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexec sleep 100\n")
    python.chmod(0o755)
    monkeypatch.setattr(drivers.sys, "executable", str(python))
    monkeypatch.setattr(drivers, "TIMEOUT_SECONDS", 0.2)
    assert drivers.ask_devices() == ((), "it gave no answer within 0.2 s")


@pytest.mark.device
def test_icd_file_without_library() -> None:
    gone = Icd("gone.icd", "libthere-is-none.so.1")
    assert drivers.ask_icd(gone) == drivers.LoadedIcd((), None, library=gone.library)


def test_icd_folder_is_probed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ICD_FOLDER / "a.icd").mkdir(parents=True)
    requests: list[Icd] = []
    nothing = drivers.LoadedIcd((), None)
    monkeypatch.setattr(board_facts, "list_icds", lambda: [])
    monkeypatch.setattr(drivers, "ask_icd", lambda icd: requests.append(icd) or nothing)
    monkeypatch.setattr(drivers, "ask_all", lambda **_: nothing)
    monkeypatch.setattr(drivers, "ask_devices", lambda: ((), "none"))
    facts = board_facts.facts_here(read_board(tmp_path), lambda found: found)
    assert requests == [Icd("/etc/OpenCL/vendors/a.icd", "")]
    assert facts.icds == {"/etc/OpenCL/vendors/a.icd": nothing}


def test_rusticl_without_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    if not any(info.platform == "rusticl" for info in list_devices()):
        pytest.skip("no rusticl here")
    monkeypatch.delenv("RUSTICL_ENABLE")
    result = drivers.ask_all()
    (rusticl,) = (each for each in result.platforms if each.name == "rusticl")
    assert rusticl.devices == ()
