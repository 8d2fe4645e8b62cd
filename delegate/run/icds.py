# SPDX-License-Identifier: Apache-2.0
"""OpenCL libraries behind the ICD loader, tried in a child process before they are loaded here.

A library may abort or hang as soon as it is opened. It is then hidden from this process's loader,
with a warning. The child's findings are cached until a file or a variable changes.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from delegate.errors import CacheError, NoDeviceError
from delegate.guard import cache
from delegate.guard.children import environment, helper
from delegate.guard.children.helper import Response
from delegate.run import calling_thread, driver_caches, pocl_linker

TIMEOUT_SECONDS = 20  # listing takes a second, more on slow storage
# A failed library is tried again after an hour: the cause may lie elsewhere.
_FAILURE_HOLDS_SECONDS = 3600
_FOLDER = "/etc/OpenCL/vendors"
VARIABLES = ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH", "OCL_ICD_FILENAMES")  # replace the default
# What drivers inspect before they name their platforms, beside environment variables.
_PLACES = ("/sys/devices/system/cpu", "/dev/dri/renderD128", "/dev/nvidiactl", "/dev/galcore")
_HOME = "PYOPENCL_HOME"  # pyopencl's wheels keep their own vendors folder below it
_POCL = re.compile(r"libpocl\b")
_POCL_VERSION = re.compile(r"libpocl\.so\.(\d+)\.(\d+)")
_POCL_3_1 = (2, 10)  # its library version; PyPI's is 3.0
_log = logging.getLogger("delegate")


@dataclass(frozen=True, slots=True)
class Icd:
    """An entry of the loader's list."""

    path: str  # of the .icd file, or of the library if a variable names it directly
    library: str  # what the loader opens
    left_out: str = ""  # why it is not opened


_is_prepared = False
# As the user set them: `prepare` sets some to hide libraries.
_named_by_user = {name: os.environ[name] for name in VARIABLES if os.environ.get(name)}


def hint() -> str:
    """Return which variables override the loader's own list, as the start of a sentence."""
    read = {n: value for n, value in _named_by_user.items() if icd_loader_reads(n)}
    unread = [n for n in _named_by_user if n not in read]
    named = [f"{n} is {value}, where alone the loader looks; " for n, value in read.items()]
    return "".join([*named, *(f"this OpenCL loader does not read {n}; " for n in unread)])


def trust() -> None:
    """Load all libraries in this process, without protection from crashes."""
    global _is_prepared
    driver_caches.prepare()
    found = list_icds()
    calling_thread.offer(icd.library for icd in found if not icd.left_out)
    _prepare_linker(found)
    _leave_out(found, {})
    _is_prepared = True


def prepare() -> None:
    """Hide libraries that crash a child from the loader; call before listing platforms.

    Raises:
        NoDeviceError: children were killed, or the limits of this process are too low to tell.
    """
    global _is_prepared
    if _is_prepared:
        return
    driver_caches.prepare()
    found = list_icds()
    _prepare_linker(found)
    for icd in found:
        if icd.left_out:
            _log.debug("the OpenCL library %s is left out: %s", icd.path, icd.left_out)
    wanted = [icd for icd in found if not icd.left_out]
    calling_thread.offer(icd.library for icd in wanted)
    failures = _failures(wanted) if wanted else {}
    _is_prepared = True
    for icd in wanted:
        if icd.path in failures:
            _log.warning(
                "the OpenCL library %s is left out: %s; to be rid of it, remove %s",
                icd.library, failures[icd.path], icd.path,
            )  # fmt: skip
    _leave_out(found, failures)


def _prepare_linker(found: Sequence[Icd]) -> None:
    if any(_is_own(icd) and not icd.left_out and _POCL.search(icd.library) for icd in found):
        pocl_linker.prepare()


def _leave_out(found: Sequence[Icd], failures: Mapping[str, str]) -> None:
    """Hide failing and unwanted libraries from this process's loader."""
    kept = [icd for icd in found if not icd.left_out and icd.path not in failures]
    if len(kept) < len(found):
        listing = _listing(kept)
        # The system's loader lists what it did before if only pyopencl's wheel is affected.
        is_own = all(_is_own(icd) != (icd in kept) for icd in found)
        os.environ.update({_HOME: listing[_HOME]} if is_own else listing)


def list_icds() -> list[Icd]:
    """Return what the loader opens in this process, in order."""
    named = os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OPENCL_VENDOR_PATH") or _FOLDER
    names = os.environ.get("OCL_ICD_FILENAMES", "") if icd_loader_reads("OCL_ICD_FILENAMES") else ""
    libraries = [each for each in names.split(":") if each]
    found = [Icd(each, each) for each in libraries if not each.endswith(".icd")]
    files = [Path(each) for each in libraries if each.endswith(".icd")]
    for place in (Path(named), *_own_folder()):
        if place.is_dir():
            files += sorted(place.glob("*.icd"))
        elif place.suffix == ".icd":
            files.append(place)
        elif place.is_file():
            found.append(Icd(str(place), str(place)))
    for file in files:
        try:
            library = os.fsdecode(file.read_bytes()).strip()
        except OSError:
            continue
        # Not Path.is_file, which raises on names that are too long.
        beside = os.path.join(file.parent, library)
        found.append(Icd(str(file), beside if library and os.path.isfile(beside) else library))
    versions = ((icd.library, _POCL_VERSION.search(icd.library)) for icd in found)
    newer = next((n for n, v in versions if v and (int(v[1]), int(v[2])) >= _POCL_3_1), None)
    if newer is None:
        return found
    why = f"the system's PoCL ({newer}) is newer"
    return [
        replace(icd, left_out=why) if _is_own(icd) and _POCL.search(icd.library) else icd
        for icd in found
    ]


def _is_own(icd: Icd) -> bool:
    """Whether it belongs to pyopencl's wheel."""
    return Path(icd.path).parent in _own_folder()


@lru_cache(maxsize=1)
def icd_loader() -> str | None:
    """Return the path of the ICD loader that pyopencl has loaded; None: unknown."""
    try:
        maps = Path("/proc/self/maps").read_text(errors="surrogateescape")
    except OSError:
        return None
    # pyopencl's wheels bundle a loader under another name: libOpenCL-<digest>.so.
    return next(iter(re.findall(r"(/\S*/libOpenCL\S*\.so\S*)$", maps, re.MULTILINE)), None)


@lru_cache(maxsize=8)
def icd_loader_reads(variable: str) -> bool:
    """Whether this loader supports an environment variable: Khronos' and ocl-icd's differ."""
    path = icd_loader()
    try:
        return path is None or variable.encode() in Path(path).read_bytes()
    except OSError:
        return True


def ask_platforms(
    icds: Sequence[Icd] | None = None, other_loader: str | None = None
) -> tuple[list[dict[str, Any]], str | None]:
    """Return a child process's listing of these libraries' platforms; None: of all libraries.

    A platform is the fields of survey.PlatformInfo. The second value says how the child failed.
    `other_loader`: path of an ICD loader to use in the child in place of pyopencl's.
    """
    if icds is None and any(icd.left_out for icd in list_icds()):
        icds = [icd for icd in list_icds() if not icd.left_out]
    listing = None if icds is None else _listing(icds)
    if other_loader is not None:
        listing = {**(listing or {}), "LD_PRELOAD": other_loader}
    response = _ask_child(listing)
    return (response.answer, None) if response.is_answered else ([], response.exit.sentence)


def _ask_child(listing: Mapping[str, str] | None) -> Response:
    # Part of the request as well: importing pyopencl sets a variable.
    seconds, variables = TIMEOUT_SECONDS, listing or {}
    return helper.ask_fresh_child("platforms", listing, step_seconds=seconds, **variables)


def _failures(found: Sequence[Icd]) -> dict[str, str]:
    """Return why libraries cannot be opened, by Icd.path; cached."""
    name = f"icds/{_state_of(found)}"
    # Under tight limits a cached result does not count: it was found under others.
    known = None if environment.shortages() else _stored_failures(cache.load(name))
    if known is not None:
        return known
    begun = time.perf_counter()
    failures, is_kept = {}, True
    response = helper.ask("platforms", step_seconds=TIMEOUT_SECONDS)
    if not response.is_answered and not response.exit.is_self_inflicted:  # which may be over
        response = helper.ask("platforms", step_seconds=TIMEOUT_SECONDS)
    if not response.is_answered:
        if not response.exit.is_self_inflicted:
            end = response.exit
            raise NoDeviceError(f"a child process that listed platforms {end}{end.remedy}")
        # Added one by one, as two libraries may fail only together.
        good: list[Icd] = []
        for icd in found:
            one = _ask_child(_listing([*good, icd]))
            if one.is_answered:
                good.append(icd)
            else:
                failures[icd.path] = one.exit.sentence
                is_kept &= one.exit.is_self_inflicted
    if is_kept:
        cache.store(name, json.dumps({"time": time.time(), "failures": failures}).encode())
    _log.debug("drivers were tried in %.2f s", time.perf_counter() - begun)
    return failures


def _stored_failures(content: bytes | None) -> dict[str, str] | None:
    """Return the cached failures; None: missing, outdated or invalid."""
    try:
        kept = json.loads(content or b"")
        failures = {str(path): str(why) for path, why in kept["failures"].items()}
        is_old = not 0 <= time.time() - float(kept["time"]) < _FAILURE_HOLDS_SECONDS
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    return None if failures and is_old else failures


def _state_of(found: Sequence[Icd]) -> str:
    """Return a key of everything a listing may depend on."""
    facts: list[object] = [sys.executable, environment.digest()]
    facts += [os.path.exists(place) for place in _PLACES]
    for place in ("/etc/ld.so.cache", *(each for icd in found for each in (icd.path, icd.library))):
        try:
            status = os.stat(place)
            facts += [place, status.st_mtime_ns, status.st_size]
        except (OSError, ValueError):  # an invalid file may contain a zero byte
            facts += [place]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:40]


def _own_folder() -> list[Path]:
    """Return pyopencl's vendors folder, if it has one."""
    home = os.environ.get(_HOME)
    return [Path(home, ".libs")] if home else []


def _listing(icds: Sequence[Icd]) -> dict[str, str]:
    """Return variables that make a loader list only these libraries; they point to a folder."""
    names = [str(file) for folder in _own_folder() for file in folder.glob("*.icd")]
    # If a variable hides the wheel's already, a child that imports pyopencl must keep it hidden.
    keeps_own = bool(names) and {*names} <= {icd.path for icd in icds}
    named = [icd.library for icd in icds if not (keeps_own and icd.path in names)]
    digest = hashlib.sha256(os.fsencode("\0".join(named))).hexdigest()[:40]
    files = {f"{n:02}.icd": os.fsencode(f"{library}\n") for n, library in enumerate(named)}
    try:
        folder = driver_caches.cached_folder(f"icds/{digest}-only", files)
    except CacheError:
        folder = driver_caches.temporary_folder(files)
    own = str(folder)
    listing = {"OCL_ICD_VENDORS": own, "OPENCL_VENDOR_PATH": own, "OCL_ICD_FILENAMES": ""}
    return listing if keeps_own else listing | {_HOME: own}
