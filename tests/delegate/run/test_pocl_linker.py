# SPDX-License-Identifier: Apache-2.0
"""The libraries that PyPI's PoCL links with where there is no compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from delegate.run import icds, pocl_linker
from delegate.run.icds import Icd


@pytest.fixture(autouse=True)
def _no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with `ld` alone, and with an empty cache."""
    monkeypatch.setenv("LIBRARY_PATH", "")  # set first, so that monkeypatch restores it afterwards
    monkeypatch.delenv("LIBRARY_PATH")
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "which", {"ld": shutil.which("ld")}.get)


def _loaded(name: str) -> Path:
    """Return the folder of a library that every process can load."""
    code = f"import ctypes; ctypes.CDLL({name!r}); print(open('/proc/self/maps').read())"
    maps = subprocess.check_output([shutil.which("python3") or "/usr/bin/python3", "-c", code])
    (path, *_) = [line.split()[-1] for line in maps.decode().splitlines() if name in line]
    return Path(path)


def test_kernels_link_without_files_of_a_compiler(tmp_path: Path) -> None:
    ld = shutil.which("ld")
    if ld is None:
        pytest.skip("no ld: apt-get install binutils")
    pocl_linker.prepare()
    (tmp_path / "runtime").mkdir()
    for name in ("libc.so.6", "libgcc_s.so.1", "libm.so.6"):
        (tmp_path / "runtime" / name).symlink_to(_loaded(name))
    (tmp_path / "kernel").write_bytes(b"any data")
    # -nostdlib: it searches the named folders and no others, which may have a compiler's files.
    line = [ld, "-nostdlib", "-shared", "-o", "kernel.so", "-Lruntime"]
    folder = [f"-L{os.environ['LIBRARY_PATH']}"]
    libraries = ["-lgcc", "--as-needed", "-lgcc_s", "--no-as-needed", "-lc", "-lm"]
    subprocess.run(
        [ld, "-r", "-b", "binary", "-o", "kernel.so.o", "kernel"], cwd=tmp_path, check=True
    )
    command = [*line, *folder, "kernel.so.o", *libraries]
    subprocess.run(command, cwd=tmp_path, check=True)
    assert b"libc.so.6\0" in (tmp_path / "kernel.so").read_bytes()
    failed = subprocess.run([*line, "kernel.so.o", *libraries], cwd=tmp_path, capture_output=True)
    assert failed.returncode


@pytest.mark.parametrize("reason", ["gcc", "LIBRARY_PATH"])
def test_what_a_user_has_is_left_alone(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason == "gcc":
        monkeypatch.setattr(shutil, "which", {"gcc": "/usr/bin/gcc"}.get)
    else:
        monkeypatch.setenv("LIBRARY_PATH", "/mine")
    pocl_linker.prepare()
    assert os.environ.get("LIBRARY_PATH") == {"LIBRARY_PATH": "/mine"}.get(reason)


def test_unwritable_cache_sets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", "/dev/null/cache")
    pocl_linker.prepare()
    assert "LIBRARY_PATH" not in os.environ


@pytest.mark.parametrize(
    ("left_out", "library", "is_set"),
    [("", "libpocl-1.so", True), ("newer", "libpocl-1.so", False), ("", "libother.so", False)],
    ids=["pocl", "left out", "another"],
)
def test_only_pypi_pocl_needs_it(
    left_out: str, library: str, is_set: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYOPENCL_HOME", str(tmp_path))
    icds._prepare_linker([Icd(str(tmp_path / ".libs/a.icd"), library, left_out)])
    assert ("LIBRARY_PATH" in os.environ) == is_set


def test_system_pocl_brings_its_own(tmp_path: Path) -> None:
    icds._prepare_linker([Icd(str(tmp_path / "pocl.icd"), "libpocl.so.2.10.0")])
    assert "LIBRARY_PATH" not in os.environ
