# SPDX-License-Identifier: Apache-2.0
"""OpenCL libraries that kill or hang a process that opens them: only a child process does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from delegate.guard import cache
from delegate.run import icds
from delegate.run.icds import Icd, ask_platforms, list_icds
from tests.attacks.bed import write_files
from tests.attacks.fatal import Fatal, build_fatal
from tests.attacks.faults import NO_COMPILER
from tests.support.command import FILES
from tests.support.process import ROOT, run_python
from tests.support.tiers import slow

LIST = """
import logging, os, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
from delegate import NoDeviceError, list_devices
from delegate.run import icds
icds.TIMEOUT_SECONDS = int(sys.argv[1])
try:
    print("devices", len(list_devices()))
except NoDeviceError as error:
    print("devices", 0)
print("process", os.getpid())
"""


@pytest.fixture
def fatal(tmp_path: Path) -> Fatal:
    """Return the library, listed with the system's drivers."""
    built = build_fatal(tmp_path)
    if built is None:
        pytest.skip(NO_COMPILER)
    return built


def listed(fatal: Fatal, kind: str, seconds: int = 60) -> tuple[list[str], int, int]:
    """Return the warnings, the number of devices and the id of a process that lists devices."""
    *warnings, devices, process = run_python(LIST, seconds, **fatal.environment(kind)).splitlines()
    return warnings, int(devices.split()[1]), int(process.split()[1])


@slow
@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("abort", "it died with SIGABRT: fatal.c: no chip"),
        ("crash", "it died with SIGSEGV"),
        ("late", "it died with SIGABRT"),
        ("hang", "it gave no answer within 5 s"),
    ],
)
def test_fatal_library_is_skipped_and_named(fatal: Fatal, kind: str, why: str) -> None:
    warnings, devices, process = listed(fatal, kind, 5 if kind == "hang" else 60)
    assert warnings == [
        f"the OpenCL library {fatal.library} is left out: {why}; to be rid of it, remove "
        f"{fatal.icd}"
    ]
    opened = fatal.openings
    assert opened
    assert process not in opened
    # Later starts need no child, warn again and find the same devices.
    assert listed(fatal, kind)[:2] == (warnings, devices)
    assert fatal.openings == opened
    fatal.icd.unlink()
    assert listed(fatal, kind)[:2] == ([], devices)


@slow
def test_killed_child_blames_no_library(fatal: Fatal) -> None:
    warnings, devices, process = listed(fatal, "kill")
    assert (warnings, devices) == ([], 0)
    assert len(fatal.openings) == 2
    assert process not in fatal.openings
    assert listed(fatal, "error")[1] > 0


@slow
@pytest.mark.parametrize("arguments", [["--version"], ["--list_devices"], ["--use_gpu"]])
def test_commands_do_not_open_fatal_library(
    fatal: Fatal, tmp_path: Path, arguments: list[str]
) -> None:
    write_files(tmp_path)
    command = [sys.executable, "-m", "label_image", *FILES, *arguments]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | fatal.environment("abort")
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as ran:
        output, _ = ran.communicate(timeout=300)
    assert f"WARN: the OpenCL library {fatal.library} is left out: ".encode() in output
    assert ran.returncode in (0, 2)  # 2 if there is no other library
    assert ran.pid not in fatal.openings


@slow
def test_library_without_platforms_is_opened(fatal: Fatal) -> None:
    for _ in range(2):
        warnings, _, process = listed(fatal, "error")
        assert warnings == []
        assert process in fatal.openings
    assert len(fatal.openings) == 3  # the child was the first


@slow
def test_changed_library_is_tested_again(fatal: Fatal) -> None:
    listed(fatal, "error")
    fatal.icd.write_text(f"{fatal.library}\n\n")
    process = listed(fatal, "abort")[2]
    assert process not in fatal.openings


@slow
def test_only_library_is_fatal(fatal: Fatal) -> None:
    for file in fatal.vendors.glob("*.icd"):
        if file != fatal.icd:
            file.unlink()
    warnings, _, process = listed(fatal, "abort")
    assert len(warnings) == 1
    assert process not in fatal.openings


def test_foreign_or_old_records_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1e9
    monkeypatch.setattr(icds.time, "time", lambda: now)
    for content in (b"", b"[]", b"{", b"\xff", b'{"failures": [], "time": 0}', b'{"time": 1}'):
        assert icds._stored_failures(content) is None
    old = now - 7200
    for failures, at, known in (({}, old, {}), ({"a": "b"}, now - 60, {"a": "b"})):
        record = json.dumps({"failures": failures, "time": at}).encode()
        assert icds._stored_failures(record) == known
    assert icds._stored_failures(json.dumps({"failures": {"a": "b"}, "time": old}).encode()) is None


def test_loaders_variables_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES", "PYOPENCL_HOME"):
        monkeypatch.delenv(name, raising=False)
    own = tmp_path / "home" / ".libs"
    own.mkdir(parents=True)
    (own / "own.icd").write_text("libown.so\n")
    (own / "libown.so").write_text("")
    (tmp_path / "a.icd").write_text("liba.so\n")
    (tmp_path / "note.txt").write_text("")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    a = Icd(str(tmp_path / "a.icd"), "liba.so")
    assert list_icds() == [a]
    monkeypatch.setenv("PYOPENCL_HOME", str(tmp_path / "home"))
    wheel_s = Icd(str(own / "own.icd"), str(own / "libown.so"))
    assert list_icds() == [a, wheel_s]
    monkeypatch.setenv("OCL_ICD_VENDORS", a.path)
    monkeypatch.setenv("OCL_ICD_FILENAMES", f"libb.so:{own / 'own.icd'}")
    # Khronos' loader reads it; ocl-icd, which pyopencl's wheels contain, does not.
    monkeypatch.setattr(icds, "icd_loader_reads", lambda variable: False)
    assert list_icds() == [a, wheel_s]
    monkeypatch.setattr(icds, "icd_loader_reads", lambda variable: True)
    assert list_icds() == [Icd("libb.so", "libb.so"), wheel_s, a, wheel_s]
    monkeypatch.setenv("OCL_ICD_FILENAMES", "")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(own / "libown.so"))
    assert list_icds() == [Icd(wheel_s.library, wheel_s.library), wheel_s]


def _listing(libraries: Sequence[str], environment: pytest.MonkeyPatch) -> Path:
    """Return the folder that the loader reads, without pyopencl's wheel."""
    environment.delenv("PYOPENCL_HOME", raising=False)
    return Path(icds._listing([Icd(each, each) for each in libraries])["OCL_ICD_VENDORS"])


ODD: dict[str, Callable[[Path], object]] = {
    "a folder": lambda path: path.mkdir(),
    "a folder with files": lambda path: (path / "files").mkdir(parents=True),
    "a pipe": os.mkfifo,
    "a link to itself": lambda path: path.symlink_to(path),
    "other words": lambda path: path.write_text("libother.so"),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("name", ["00.icd", "99.icd"])
def test_loaders_folder_is_right_with_damaged_cache(
    odd: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    file = _listing(["liba.so", "libb.so"], monkeypatch) / name
    file.unlink(missing_ok=True)
    ODD[odd](file)
    result = _listing(["liba.so", "libb.so"], monkeypatch)
    assert {each.name: each.read_text() for each in result.glob("*.icd")} == {
        "00.icd": "liba.so\n",
        "01.icd": "libb.so\n",
    }


def test_loaders_folder_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path / "cache"))
    folder = _listing(["liba.so"], monkeypatch)
    first = os.stat(folder / "00.icd")
    _listing(["liba.so"], monkeypatch)
    assert os.stat(folder / "00.icd") == first


@pytest.mark.parametrize(
    ("system_s", "is_left_out"),
    [
        ("libpocl.so.2.10.0", True),
        ("/usr/lib/libpocl.so.3.1", True),
        ("libpocl.so.2.8.0", False),  # 1.8, as in Ubuntu 22.04
        ("libpocl.so.2", False),
        ("libother.so.9.9", False),
    ],
)
def test_pypi_pocl_is_skipped_if_system_has_newer_one(
    system_s: str, is_left_out: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "home" / ".libs"
    own.mkdir(parents=True)
    (own / "pocl.icd").write_text("libpocl-21062cec.so")
    (own / "other.icd").write_text("libother.so")
    (tmp_path / "pocl.icd").write_text(system_s)
    for name in ("OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.setenv("PYOPENCL_HOME", str(tmp_path / "home"))
    why = f"the system's PoCL ({system_s}) is newer" if is_left_out else ""
    assert [(icd.library, icd.left_out) for icd in list_icds()] == [
        (system_s, ""),
        ("libother.so", ""),
        ("libpocl-21062cec.so", why),
    ]
    # A child hides it from its loader, and later does not see it.
    monkeypatch.setattr(icds, "_is_prepared", False)
    icds.trust()
    entries = [icd.library for icd in list_icds()]
    assert ("libpocl-21062cec.so" in entries) != is_left_out
    assert {system_s, "libother.so"} <= {*entries}


@pytest.mark.parametrize(
    "content",
    [b"\0abc", b"x" * 300, b"/" + b"x" * 5000, b"\xff.so"],
    ids=["a zero byte", "a long name", "a long path", "no UTF-8"],
)
def test_invalid_icd_file_does_not_hide_others(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.icd").write_text("liba.so")
    (tmp_path / "b.icd").write_bytes(content)
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.setenv("PYOPENCL_HOME", "")
    result = list_icds()
    assert [os.fsencode(icd.library) for icd in result] == [b"liba.so", content]
    assert icds._state_of(result)
    folder = Path(icds._listing(result)["OCL_ICD_VENDORS"])
    assert [path.read_bytes() for path in sorted(folder.iterdir())] == [
        b"liba.so\n",
        content + b"\n",
    ]


def test_unwritable_cache_uses_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, "/proc/none")
    monkeypatch.delenv("PYOPENCL_HOME", raising=False)
    variables = icds._listing([Icd("a.icd", "liba.so")])
    (file,) = Path(variables["OCL_ICD_VENDORS"]).iterdir()
    assert file.read_text() == "liba.so\n"


def test_silent_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert ask_platforms() == ([], "it ended with code 3")
