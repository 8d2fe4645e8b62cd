# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the whole tree: fixed seeds, and every OpenCL device that works.

NOTE: the environment is set before any driver loads, and child processes inherit it.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import Generator
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

from tests.support.linker import use_small_links

# rusticl lists llvmpipe only on request.
os.environ.setdefault("RUSTICL_ENABLE", "llvmpipe")
# llvmpipe stands for a GPU: the tests are for rusticl's compiler. LLVM's optimisation behind it
# takes a third longer, and no GPU uses it. .ci/run's suite and main command keep it on.
os.environ.setdefault("GALLIVM_PERF", "nopt")
os.environ.pop("TFLITE_OPENCL_DEVICE", None)
# The fast tier does not build and time each small model a second time, on PoCL without threads.
if "--full" not in sys.argv:
    os.environ.setdefault("TFLITE_OPENCL_POCL_OFFERED", "0")
# Without .pyc files each Python that a test starts would compile the packages again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Tests do not touch the user's cache. All workers of a run share a new one, or that of
# TFLITE_OPENCL_TEST_CACHE, so that a device is examined and a program built once.
_temporary_cache: tempfile.TemporaryDirectory[str] | None = None
if "PYTEST_XDIST_WORKER" not in os.environ:
    folder = os.environ.get("TFLITE_OPENCL_TEST_CACHE")
    if not folder:
        _temporary_cache = tempfile.TemporaryDirectory(prefix="tflite-opencl-tests-")
    os.environ["TFLITE_OPENCL_CACHE"] = folder or _temporary_cache.name
    use_small_links(Path(os.environ["TFLITE_OPENCL_CACHE"], "linker"))

pytest.register_assert_rewrite(
    "tests.support.compare", "tests.support.cases", "tests.support.factories"
)

# Before TFLite is loaded: tflite-runtime on Arm flushes denormal floats from then on, about which
# NumPy warns when the delegate first asks it for the limits of floats.
from delegate import DeviceInfo, NoDeviceError, list_devices  # noqa: E402
from delegate import engine as start_engine  # noqa: E402
from delegate.guard.probing.probe import examine  # noqa: E402
from delegate.plan.dispatch.kernels import Kernels  # noqa: E402
from delegate.plan.planners import planner as start_planner  # noqa: E402
from tests.support import tiers, without_tflite  # noqa: E402

without_tflite.patch()  # before other imports of what it replaces

from tests.support.opencl import build_with, hold_context, open_cached  # noqa: E402
from tflite_opencl.console.files import keep  # noqa: E402

# No planning in child processes, which would double the time. Tests of it switch it on.
start_engine.is_on = False

_settings = settings(
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.register_profile("fast", _settings, max_examples=5)
settings.register_profile("full", _settings, max_examples=25)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("full" if config.option.full else "fast")


@lru_cache(maxsize=1)
def _devices() -> tuple[list[DeviceInfo], list[str]]:
    """Return the devices that pass their self-test, and a line for each that does not."""
    working, failing = [], []
    try:
        devices = list_devices()
    except NoDeviceError as error:
        return [], [str(error)]
    for info in devices:
        failure = examine(info).failure
        if failure is None:
            working.append(info)
        else:
            failing.append(f"skipped {info.name} ({info.driver}): {failure}")
    return working, failing


def device_id(info: DeviceInfo) -> str:
    """Return a short readable name: "pocl-3.1", "rusticl-llvmpipe"."""
    if "PoCL" in info.platform_version:
        return f"pocl-{info.driver.split('+')[0]}"
    return f"{info.platform}-{info.name.split()[0]}".lower().replace(" ", "-")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # Collection makes thousands of objects and no garbage: the collector would take a third of the
    # time, and later a part of every test's.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_options(parser)


def pytest_runtest_teardown() -> None:
    keep(())  # commands in the process of the tests register their inputs there


def pytest_sessionstart() -> None:
    # Before xdist starts its workers, which then find the results in the cache.
    _devices()


def pytest_unconfigure() -> None:
    if _temporary_cache is not None:
        _temporary_cache.cleanup()


def pytest_report_header() -> list[str]:
    working, failing = _devices()
    names = ", ".join(device_id(info) for info in working) or "none"
    return [f"OpenCL devices: {names}", *failing]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        working, failing = _devices()
        reason = f"no device: {'; '.join(failing)}"
        devices = tiers.devices_of(metafunc.config, working)
        parameters = [pytest.param(info, id=device_id(info)) for info in devices] or [
            pytest.param(None, id="none", marks=pytest.mark.skip(reason=reason))
        ]
        metafunc.parametrize("device", parameters, scope="session")


@pytest.fixture
def one_context(request: pytest.FixtureRequest) -> None:
    """Keep the shared context of the test's device open for later tests.

    PoCL reads its built-in library for each context, which takes 0.15 s.
    """
    if "device" in request.fixturenames:
        hold_context(request.getfixturevalue("device"))


@pytest.fixture
def one_device(
    request: pytest.FixtureRequest, one_context: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep the test's device open, too, for tests that create many delegates."""
    if "device" in request.fixturenames:
        monkeypatch.setattr(start_engine, "open_device", open_cached)
        # PoCL compiles a program again for its binary, which takes 0.3 s.
        monkeypatch.setattr(Kernels, "_binary_of", lambda *program: None)


@pytest.fixture
def no_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore and discard measured choices, but not the results of self-tests."""
    nowhere = SimpleNamespace(look_up=lambda table, key: None, save=lambda table, entries: None)
    monkeypatch.setattr(start_planner, "Store", lambda identity: nowhere)


@pytest.fixture
def unoptimised(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make PoCL compile without optimisation in the fast tier, in less than a third of the time."""
    build_with(monkeypatch, "" if request.config.option.full else "-cl-opt-disable")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    for item in items:
        if "device" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.device)
    yield
    tiers.select(config, items)  # after -k and -m
