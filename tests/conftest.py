# SPDX-License-Identifier: Apache-2.0
"""Fixtures for the whole tree: fixed seeds, and every OpenCL device that works.

NOTE: the environment is set before any driver loads, and is that of child processes too.
"""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Generator
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

from tests.support.linker import use_small_links

# rusticl shows llvmpipe only when asked to.
os.environ.setdefault("RUSTICL_ENABLE", "llvmpipe")
# llvmpipe stands for a GPU here: what is tried is rusticl's compiler. The machine code that LLVM
# makes of its result takes a third longer to be made well, and no GPU runs it. .ci/run's suite
# and main command run it as users do.
os.environ.setdefault("GALLIVM_PERF", "nopt")
os.environ.pop("TFLITE_OPENCL_DEVICE", None)
# Some tests start a Python. Without .pyc files each of them would compile the packages again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Tests never touch the user's own cache. A run has one, new and empty: its worker processes share
# it, so that a device is examined and a program built once. A developer may keep a folder for it.
_own_cache: tempfile.TemporaryDirectory[str] | None = None
if "PYTEST_XDIST_WORKER" not in os.environ:
    kept = os.environ.get("TFLITE_OPENCL_TEST_CACHE")
    if not kept:
        _own_cache = tempfile.TemporaryDirectory(prefix="tflite-opencl-tests-")
    os.environ["TFLITE_OPENCL_CACHE"] = kept or _own_cache.name
    use_small_links(Path(os.environ["TFLITE_OPENCL_CACHE"], "linker"))

pytest.register_assert_rewrite(
    "tests.support.compare", "tests.support.cases", "tests.support.factories"
)

# Before TFLite is loaded: tflite-runtime on Arm makes denormal floats zero from then on, and numpy
# would warn of that where the delegate first asks it for the limits of floats.
from delegate import DeviceInfo, NoDeviceError, list_devices  # noqa: E402
from delegate import engine as start_engine  # noqa: E402
from delegate.guard.probing.probe import examine  # noqa: E402
from delegate.plan.dispatch.kernels import Kernels  # noqa: E402
from delegate.plan.planners import planner as start_planner  # noqa: E402
from tests.support import tiers, without_tflite  # noqa: E402

without_tflite.patch()  # before others import what it replaces

from tests.support.opencl import build_with, hold_context, open_kept  # noqa: E402
from tflite_opencl.console.files import keep  # noqa: E402

# They test kernels, thousands of them, in processes that may die. Tests of this switch it on.
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
        found = list_devices()
    except NoDeviceError as error:
        return [], [str(error)]
    for info in found:
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
    # Thousands of tests are made, and none of them is garbage: to look takes a third of that time,
    # and later a part of every test's.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers.add_options(parser)


def pytest_runtest_teardown() -> None:
    keep(())  # which commands are told in the process of the tests


def pytest_sessionstart() -> None:
    # Before xdist starts its workers, which then find the answers in the cache.
    _devices()


def pytest_unconfigure() -> None:
    if _own_cache is not None:
        _own_cache.cleanup()


def pytest_report_header() -> list[str]:
    working, failing = _devices()
    names = ", ".join(device_id(info) for info in working) or "none"
    return [f"OpenCL devices: {names}", *failing]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device" in metafunc.fixturenames:
        working, failing = _devices()
        why = "; ".join(failing)
        devices = tiers.devices_of(metafunc.config, working)
        parameters = [pytest.param(info, id=device_id(info)) for info in devices] or [
            pytest.param(None, id="none", marks=pytest.mark.skip(reason=f"no device: {why}"))
        ]
        metafunc.parametrize("device", parameters, scope="session")


@pytest.fixture
def one_context(request: pytest.FixtureRequest) -> None:
    """Keep the context that delegates share on the test's device open for the tests after it.

    PoCL reads its library of functions for each context: 0.15 s at the first program built there.
    """
    if "device" in request.fixturenames:
        hold_context(request.getfixturevalue("device"))


@pytest.fixture
def one_device(
    request: pytest.FixtureRequest, one_context: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keep the test's device itself open, too, for tests that have a hundred delegates on it."""
    if "device" in request.fixturenames:
        monkeypatch.setattr(start_engine, "open_device", open_kept)
        # For a binary PoCL compiles a program once more, which takes 0.3 s.
        monkeypatch.setattr(Kernels, "_binary_of", lambda *program: None)


@pytest.fixture
def no_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with nothing that was measured, and keep none; what the self-tests found is kept."""
    nowhere = SimpleNamespace(look_up=lambda table, key: None, save=lambda table, entries: None)
    monkeypatch.setattr(start_planner, "Store", lambda identity: nowhere)


@pytest.fixture
def unoptimised(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PoCL compile without optimisation in the fast tier: a third of the time and less."""
    build_with(monkeypatch, "" if request.config.option.full else "-cl-opt-disable")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    for item in items:
        if "device" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.device)
    yield
    tiers.select(config, items)  # of what -k and -m left
