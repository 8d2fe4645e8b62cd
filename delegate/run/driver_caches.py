# SPDX-License-Identifier: Apache-2.0
"""Kernel cache folders of drivers: redirected where they cannot be written or loaded from.

Services and containers run as users without a writable home. PoCL then has no device, other
drivers recompile everything at each start, and pyopencl creates no kernel.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from delegate.errors import CacheError
from delegate.guard import cache

_SHARED_MEMORY = "/dev/shm"
_LOADS = ("PoCL",)  # loads kernels as shared libraries, which a mount with noexec forbids
_LEAST_ROOM_BYTES = 4 << 20  # PoCL's cache for a small model
_log = logging.getLogger("delegate")


# By driver: the variable that names its folder, and the default below the home folder; drivers
# read them when they are loaded.
# Source: the drivers' documentation: docs/envvar of PoCL and of Mesa; CUDA's programming guide
_DRIVERS = {
    "PoCL": ("POCL_CACHE_DIR", ".cache/pocl/kcache"),
    "Mesa": ("MESA_SHADER_CACHE_DIR", ".cache/mesa_shader_cache"),
    "NVIDIA": ("CUDA_CACHE_PATH", ".nv/ComputeCache"),
}


@lru_cache(maxsize=1)
def prepare() -> None:
    """Redirect each driver that cannot write its cache folder; call before drivers are loaded.

    A folder that the user set is left alone. The replacement is in this program's cache, or a
    temporary folder if that is not writable either.
    """
    _prepare_temporary()
    for name, (variable, below_home) in _DRIVERS.items():
        folder = _default(below_home)
        if os.environ.get(variable) or folder is None:
            continue
        if (why := _obstacle(folder, name in _LOADS)) is None:
            continue
        if (other := _fallback_folder(name)) is not None:
            os.environ[variable] = str(other)
            _log.debug("%s cannot cache its kernels in %s (%s): %s", name, folder, why, other)
    _prepare_pyopencl()


def _prepare_temporary() -> None:
    """Fall back to shared memory for temporary files if nothing else is writable.

    That is the case in a container of `docker run --read-only`.
    """
    try:
        tempfile.gettempdir()
    except OSError:
        if os.access(_SHARED_MEMORY, os.W_OK | os.X_OK):
            os.environ["TMPDIR"] = _SHARED_MEMORY


def _prepare_pyopencl() -> None:
    """Redirect pyopencl's cache if its own place is not writable.

    It caches generated Python code that sets kernel arguments. The folder is looked up once, at
    import, and no variable overrides it.
    """
    if _obstacle(cache.user_folder("pytools")) and (other := _fallback_folder("pyopencl")):
        name = "XDG_CACHE_HOME"
        before = {name: os.environ[name]} if name in os.environ else {}
        os.environ[name] = str(other)
        try:
            importlib.import_module("pyopencl.invoker")
        finally:
            del os.environ[name]
            os.environ.update(before)


def _fallback_folder(name: str) -> Path | None:
    """Return a folder of ours for a driver's cache; None: nowhere to put it."""
    with contextlib.suppress(CacheError):
        folder = cache.make_folder(f"drivers/{name.lower()}")
        if _obstacle(folder, name in _LOADS) is None:
            cache.hold(f"drivers/{name.lower()}")
            return folder
    with contextlib.suppress(CacheError):
        return _temporary() / name.lower()
    return None


def obstacles() -> str:
    """Return which configured folders are not writable, as the start of a sentence."""
    found = ""
    for name, (variable, _) in _DRIVERS.items():
        named = os.environ.get(variable)
        if named and (why := _obstacle(Path(named), name in _LOADS)):
            found += f"{variable} is {named}, which {name} cannot use ({why}); "
    return found


def _default(below_home: str) -> Path | None:
    """Return a driver's default folder; None: without a home it uses a temporary folder."""
    top, _, folder = below_home.partition("/")
    if top == ".cache" and (caches := os.environ.get("XDG_CACHE_HOME")):
        return Path(caches, folder)
    home = os.environ.get("HOME")
    return Path(home, below_home) if home else None


def _obstacle(folder: Path, loads: bool = False) -> str | None:
    """Return why a folder cannot be written or created, or None.

    `loads`: libraries in it must be loadable.
    """
    for place in (folder, *folder.parents):
        if os.path.isdir(place):  # Path.is_dir raises without permission
            # access() succeeds in /proc and /sys, but no file can be created.
            is_kernel_s = not {Path("/proc"), Path("/sys")}.isdisjoint((place, *place.parents))
            is_writable = os.access(place, os.W_OK | os.X_OK) and not is_kernel_s
            if is_writable and loads and _is_noexec(place):
                return f"{place} is mounted noexec"
            if is_writable:
                return None if _has_room(place) else f"{place} has no room left"
            return f"{place} cannot be written"
        if os.path.exists(place):
            return f"{place} is no folder"
    return f"{folder} does not exist"


def _is_noexec(folder: str | Path) -> bool:
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_NOEXEC)
    except OSError:
        return False


def _has_room(folder: str | Path) -> bool:
    """Whether a driver's cache fits; assumed if the file system does not report free space."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return True
    is_full = status.f_blocks > 0 and status.f_bavail * status.f_frsize < _LEAST_ROOM_BYTES
    return not is_full and (status.f_files == 0 or status.f_favail > 0)


@lru_cache(maxsize=1)
def _temporary() -> Path:
    return temporary_folder(loads=True)


def temporary_folder(files: Mapping[str, bytes] | None = None, loads: bool = False) -> Path:
    """Return a new folder, deleted when the process exits; `files`: its content, by name.

    `loads`: libraries in it must be loadable, if there is such a place.

    Raises:
        CacheError: no place is writable.
    """
    try:
        # On a full file system a folder can still be created, but nothing in it.
        place = tempfile.gettempdir()
        is_good = _has_room(place) and not (loads and _is_noexec(place))
        if not is_good and os.access(_SHARED_MEMORY, os.W_OK | os.X_OK):
            # Containers mount it noexec, too.
            place = place if loads and _is_noexec(_SHARED_MEMORY) else _SHARED_MEMORY
        folder = Path(tempfile.mkdtemp(prefix="tflite-opencl-", dir=place))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for name, content in (files or {}).items():
            cache.replace_file(folder / name, content)
    except OSError as error:
        raise CacheError(f"no temporary folder: {error.strerror} (TMPDIR can name one)") from error
    return folder


def cached_folder(name: str, files: Mapping[str, bytes]) -> Path:
    """Return a folder in this program's cache with these files, and with no other .icd file.

    Raises:
        CacheError: it has another, or one cannot be written.
    """
    folder = cache.make_folder(name)
    cache.hold(name)  # this process's variables point to it
    for file, content in files.items():
        if cache.sha256_of(f"{name}/{file}") != hashlib.sha256(content).hexdigest():
            cache.write_cached(f"{name}/{file}", content)
    # The ICD loader would open it, and block on a pipe.
    if others := {path.name for path in folder.glob("*.icd")} - files.keys():
        raise CacheError(f"{folder} has a file that is not ours: {min(others)}")
    return folder
