# SPDX-License-Identifier: Apache-2.0
"""Cache folders of drivers: a replacement if the default cannot be written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from delegate import DeviceInfo, list_devices
from delegate.guard.probing.remedies import advice
from delegate.inspect import write_model
from delegate.run import driver_caches
from tests.support.nets import conv_pool
from tests.support.process import run_python
from tests.support.tiers import slow

VARIABLES = ("POCL_CACHE_DIR", "MESA_SHADER_CACHE_DIR", "CUDA_CACHE_PATH")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Unset the variables, and forget earlier preparations."""
    for name in (*VARIABLES, "XDG_CACHE_HOME"):
        # Set first, so that monkeypatch restores it afterwards.
        monkeypatch.setenv(name, "")
    driver_caches.prepare.cache_clear()
    driver_caches._temporary.cache_clear()
    yield
    driver_caches.prepare.cache_clear()
    driver_caches._temporary.cache_clear()


def given() -> list[str]:
    driver_caches.prepare()
    return [os.environ[name] for name in VARIABLES]


def test_writable_home_is_left_to_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "made" / "later"))
    assert given() == ["", "", ""]


@pytest.mark.parametrize("home", ["/dev/null", "/proc/nobody"])
def test_unwritable_home_is_replaced_by_our_cache(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(tmp_path))
    assert given() == [str(tmp_path / "drivers" / name) for name in ("pocl", "mesa", "nvidia")]
    assert (tmp_path / "drivers").stat().st_mode & 0o777 == 0o700


def test_full_home_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disks of home and of our cache are full, but not shared memory."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(tmp_path / "cache"))
    real = os.statvfs

    def of(path: str | Path) -> SimpleNamespace:
        result = real(path)
        is_full = Path(path).is_relative_to(tmp_path) or Path(path) == tmp_path
        free = 16 if is_full else result.f_bavail
        return SimpleNamespace(
            f_blocks=result.f_blocks, f_bavail=free, f_frsize=result.f_frsize, f_files=0,
            f_favail=0, f_flag=result.f_flag,
        )  # fmt: skip

    monkeypatch.setattr(os, "statvfs", of)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for folder in map(Path, given()):
        assert not folder.is_relative_to(tmp_path)
        assert folder.is_relative_to(driver_caches._SHARED_MEMORY)


def test_file_system_without_inodes_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert driver_caches._obstacle(tmp_path) is None
    left = SimpleNamespace(f_blocks=9, f_bavail=1 << 20, f_frsize=4096, f_files=9, f_favail=0)
    monkeypatch.setattr(os, "statvfs", lambda path: left)
    assert driver_caches._obstacle(tmp_path) == f"{tmp_path} has no room left"
    left.f_files = left.f_blocks = left.f_bavail = 0  # unknown
    assert driver_caches._obstacle(tmp_path) is None


def test_unwritable_cache_is_replaced_by_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", "/dev/null/ours")
    folders = given()
    assert len({Path(each).parent for each in folders}) == 1
    assert os.access(Path(folders[0]).parent, os.W_OK)


def test_cache_that_is_mounted_noexec_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, open_, real = tmp_path / "closed", tmp_path / "open", os.statvfs
    closed.mkdir()
    open_.mkdir()

    def of(path: str | Path) -> SimpleNamespace:
        result = real(path)
        flag = os.ST_NOEXEC if Path(path).is_relative_to(closed) else 0
        names = ("f_blocks", "f_bavail", "f_frsize", "f_files", "f_favail")
        return SimpleNamespace(**{each: getattr(result, each) for each in names}, f_flag=flag)

    monkeypatch.setattr(os, "statvfs", of)
    monkeypatch.setattr(tempfile, "tempdir", str(open_))
    monkeypatch.setenv("HOME", str(closed))
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(closed / "ours"))
    pocl, mesa, nvidia = given()
    assert Path(pocl).is_relative_to(open_)
    assert (mesa, nvidia) == ("", "")  # which load no library from there
    monkeypatch.setenv("POCL_CACHE_DIR", str(closed / "mine"))
    assert driver_caches.obstacles() == (
        f"POCL_CACHE_DIR is {closed / 'mine'}, which PoCL cannot use ({closed} is mounted noexec); "
    )
    pocl_device = DeviceInfo(0, "Portable Computing Language", "", "cpu", "", "", "", "cpu")
    told = (
        f"; POCL_CACHE_DIR is {closed / 'mine'}, which PoCL cannot use ({closed} is mounted noexec)"
    )
    assert advice(pocl_device, "undefined") == told


def test_folder_named_by_user_is_kept_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(tmp_path))
    monkeypatch.setenv("POCL_CACHE_DIR", "/dev/null/mine")
    assert given()[0] == "/dev/null/mine"
    assert driver_caches.obstacles() == (
        "POCL_CACHE_DIR is /dev/null/mine, which PoCL cannot use (/dev/null is no folder); "
    )


# The environment of a process before it imports the delegate.
_NO_HOME = (
    "import os, pwd\n"
    f"for name in ('HOME', *{VARIABLES}): os.environ.pop(name)\n"
    "pwd.getpwuid = {}.__getitem__\n"
)
_NO_TEMPORARY = (
    "import os, tempfile\n"
    "tempfile._candidate_tempdir_list = lambda: [os.environ.get('TMPDIR') or '/dev/null']\n"
)
_OURS = {"TFLITE_OPENCL_CACHE": "/dev/null/ours"}


def surroundings(name: str, folder: Path) -> tuple[str, dict[str, str]]:
    """Return initial code and variables under which none of the user's files can be written."""
    locked = folder / "locked"
    (locked / "devices").mkdir(parents=True)
    locked.chmod(0)
    results: dict[str, tuple[str, dict[str, str]]] = {
        "no folder": ("", {"HOME": "/dev/null", **_OURS}),
        "locked home": ("", {"HOME": str(locked), "TFLITE_OPENCL_CACHE": ""}),
        "locked cache": ("", {"HOME": "/dev/null", "TFLITE_OPENCL_CACHE": str(locked)}),
        "no home": (_NO_HOME, {"TFLITE_OPENCL_CACHE": ""}),
        "no temporary": (_NO_TEMPORARY, {"TMPDIR": "", "HOME": "/dev/null", **_OURS}),
    }
    return results[name]


@slow
@pytest.mark.parametrize(
    "name", ["no folder", "locked home", "locked cache", "no home", "no temporary"]
)
def test_devices_are_listed_without_writable_folders(
    device: DeviceInfo, name: str, tmp_path: Path
) -> None:
    first, environment = surroundings(name, tmp_path)
    code = (
        f"{first}from delegate import list_devices\n"
        "from delegate.inspect import start_early\nstart_early()\n"
        "print([info.name for info in list_devices()])\n"
        "import pyopencl.invoker"  # as the first kernel does
    )
    message = run_python(code, is_root=False, **environment)
    assert message == f"{[info.name for info in list_devices()]}\n"


@slow
@pytest.mark.parametrize("name", ["no folder", "locked home", "no temporary"])
def test_model_runs_without_writable_folders(device: DeviceInfo, name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(write_model(conv_pool()))
    first, environment = surroundings(name, tmp_path)
    code = (
        f"{first}import sys\nfrom delegate import Model\n"
        "with Model(sys.argv[1], device=int(sys.argv[2]), tune='off') as model:\n"
        "    print(model.run(model.empty_input())[0].dtype)"
    )
    message = run_python(code, path, device.index, is_root=False, **environment)
    assert message in ("uint8\n", "int8\n")
