# SPDX-License-Identifier: Apache-2.0
"""Plan files: used for an equal model and machine, and refused with one line otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from delegate import DeviceInfo, OpenCLDelegate, Options, PlanError
from delegate import engine as start_engine
from delegate.graph.ir import Graph
from delegate.guard import cache
from delegate.guard.cache import digests
from delegate.guard.children import helper
from delegate.inspect import write_model
from delegate.plan import contents
from delegate.plan.file import read_plan, write_plan
from delegate.plan.planners.planner import Planner
from tests.support.compare import interpreter
from tests.support.nets import conv_pool
from tests.support.small_v2 import small_v2
from tests.support.tiers import slow

pytestmark = pytest.mark.device


@pytest.fixture(autouse=True)
def _children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(start_engine, "is_on", True)
    yield
    helper._close()


def outputs_of(model: bytes, delegate: OpenCLDelegate) -> np.ndarray[Any, Any]:
    interp = interpreter(model, delegate)
    detail = interp.get_input_details()[0]
    rng = np.random.default_rng(1)
    interp.set_tensor(detail["index"], rng.integers(0, 99, detail["shape"]).astype(detail["dtype"]))
    interp.invoke()
    return np.array(interp.get_tensor(interp.get_output_details()[0]["index"]))


@pytest.fixture
def written(device: DeviceInfo, tmp_path: Path) -> tuple[bytes, Path, np.ndarray[Any, Any]]:
    """Return a model, its plan file, and outputs without that file."""
    model, path = write_model(conv_pool()), tmp_path / "m.plan"
    with contextlib.closing(OpenCLDelegate(device=device.index, tune="off")) as delegate:
        expected = outputs_of(model, delegate)
        delegate.write_plan(path)
    return model, path, expected


def error_of(model: bytes, options: Options) -> str:
    """Return why a model does not run with a plan; "" if it does."""
    try:
        delegate = OpenCLDelegate(options=options)
    except PlanError as error:
        return str(error)
    with contextlib.closing(delegate):
        try:
            outputs_of(model, delegate)
        except RuntimeError:
            return str(delegate.failure)
    return ""


def no_planning(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object, **more: object) -> None:
        raise AssertionError("planned again")

    for name in ("__init__", "verdicts", "partition"):
        monkeypatch.setattr(Planner, name, never)
    monkeypatch.setattr(helper, "ask", never)


@slow
def test_plan_file_needs_neither_cache_nor_child(
    device: DeviceInfo,
    written: tuple[bytes, Path, np.ndarray[Any, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, path, expected = written
    known = cache.cache_folder()
    monkeypatch.setenv(cache.ENVIRONMENT_VARIABLE, str(tmp_path / "other"))
    for folder in ("devices", "icds"):  # results of self-tests
        if (known / folder).exists():
            (tmp_path / "other").mkdir(exist_ok=True, mode=0o700)
            (tmp_path / "other" / folder).symlink_to(known / folder)
    no_planning(monkeypatch)
    options = Options(device.index, tune="off", plan=path)
    with contextlib.closing(OpenCLDelegate(options=options)) as delegate:
        assert np.array_equal(outputs_of(model, delegate), expected)
        assert all(verdict.is_taken for verdict in delegate.verdicts)


@slow
@pytest.mark.parametrize(
    ("graph", "options", "why"),
    [
        (small_v2(), {}, "another model, shape"),
        (conv_pool(), {"passes": ()}, "or options than these"),
        (conv_pool(), {"exclude_isa": ["all"]}, "other instructions"),
    ],
    ids=["model", "options", "instructions"],
)
def test_plan_for_other_options_is_refused(
    device: DeviceInfo,
    written: tuple[bytes, Path, np.ndarray[Any, Any]],
    graph: Graph,
    options: dict[str, Any],
    why: str,
) -> None:
    path = written[1]
    if "exclude_isa" in options and not read_plan(path).about["proven"]:
        pytest.skip("nothing was proven of this device")
    output = error_of(write_model(graph), Options(device.index, tune="off", plan=path, **options))
    assert why in output
    assert "\n" not in output


def test_plan_for_other_device_or_version_is_refused(
    device: DeviceInfo, written: tuple[bytes, Path, np.ndarray[Any, Any]]
) -> None:
    path = written[1]
    whole = read_plan(path)
    names = [name for name in whole._parts if name is not None]
    parts = {name: part for name in names if (part := whole.part(name)) is not None}
    for key, why in (("device", "another device"), ("code", "another version of this package")):
        write_plan(path, {**whole.about, key: "other"}, parts)
        with pytest.raises(PlanError, match=why):
            OpenCLDelegate(device=device.index, tune="off", plan=path)


@slow
def test_damaged_plan_file_is_one_line(
    device: DeviceInfo, written: tuple[bytes, Path, np.ndarray[Any, Any]]
) -> None:
    model, path, expected = written
    content = path.read_bytes()
    rng = np.random.default_rng(2)
    cuts = [content[: int(at)] for at in rng.integers(0, len(content), 20)]
    flips = []
    for at in rng.integers(0, len(content), 40):
        changed = bytearray(content)
        changed[at] ^= 1 << int(rng.integers(8))
        flips.append(bytes(changed))
    options = Options(device.index, tune="off", plan=path)
    for each in (*cuts, *flips, b"", b"tflite-opencl plan 1\n{}\n"):
        path.write_bytes(each)
        output = error_of(model, options)
        assert "\n" not in output
        if not output:  # padding bytes have no meaning
            with contextlib.closing(OpenCLDelegate(options=options)) as delegate:
                assert np.array_equal(outputs_of(model, delegate), expected)


def test_plan_without_child_cannot_be_written(device: DeviceInfo, tmp_path: Path) -> None:
    options = Options(device.index, tune="off", in_child_first=False)
    with contextlib.closing(OpenCLDelegate(options=options)) as delegate:
        outputs_of(write_model(conv_pool()), delegate)
        with pytest.raises(PlanError, match="in_child_first"):
            delegate.write_plan(tmp_path / "m.plan")


def test_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_SETTLED_SECONDS", 0)
    monkeypatch.setattr(digests, "_LEAST_BYTES", 0)
    path, values = tmp_path / "m.plan", np.arange(100, dtype=np.uint8)
    write_plan(path, {}, {"constants/x": values})
    assert np.array_equal(read_plan(path).part("constants/x"), values)
    cache.keep_digests()
    hashed: list[object] = []
    monkeypatch.setattr(contents, "hashlib", SimpleNamespace(sha256=hashed.append))
    assert np.array_equal(read_plan(path).part("constants/x"), values)
    assert hashed == []
