# SPDX-License-Identifier: Apache-2.0
"""Programs are built from source once, then loaded from the cache, even if it was damaged."""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyopencl as cl
import pytest

from delegate import DeviceError, DeviceInfo
from delegate.inspect import KernelBuildError
from delegate.isa import OWN_BUILTINS, PARAMS_ARGUMENT
from delegate.launch import Launch
from delegate.ops import lower
from delegate.plan.dispatch import kernels as kernels_module
from delegate.plan.dispatch.kernels import Kernels
from delegate.plan.sources import chosen_of, defines_of, may_be_argument, source_of
from delegate.run.device import Device
from delegate.target import Target
from tests.support.nets import net
from tests.support.opencl import opencl_error

POOL = lower(net([("AVERAGE_POOL_2D", [0], 1)]).nodes[0], Target())[-1].launches[0]
ADD = lower(net([("ADD", [0, 0], 1)]).nodes[0], Target())[-1].launches[0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder."""
    monkeypatch.setenv("TFLITE_OPENCL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("delegate.guard.cache.folder._warned", set())
    monkeypatch.setattr(Kernels, "_is_driver_cached", lambda *_: False)
    return tmp_path / "cache"


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the origin of each new program: "source" or "binary"."""
    created: list[str] = []
    real = cl.Program

    def program(context: cl.Context, first: object, *binaries: object) -> cl.Program:
        created.append("binary" if binaries else "source")
        return real(context, first, *binaries)

    monkeypatch.setattr(cl, "Program", program)
    return created


def only_file(folder: Path) -> Path:
    (path,) = (folder / "programs").iterdir()
    return path


def test_program_is_built_once_then_loaded(
    device: DeviceInfo, folder: Path, builds: list[str]
) -> None:
    opened = Device(device)
    kernels = Kernels(opened)
    for _ in range(2):
        kernels.build(ADD)
    assert builds == ["source"]
    assert only_file(folder).name.startswith("add-")
    Kernels(opened).build(ADD)  # from the context
    assert builds == ["source"]
    for _ in range(2):
        Kernels(Device(device)).build(ADD)
    assert builds == ["source", "binary", "binary"]


def test_slow_binary_is_retrieved_in_later_start(
    device: DeviceInfo, folder: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels_module, "LONG_SECONDS", -1.0)
    monkeypatch.setattr(Kernels, "_is_driver_cached", lambda *_: True)
    Kernels(Device(device)).build(ADD)  # binaries are known to take long from now on

    for left in (1.0, 0.0, 1.0, 1.0):
        monkeypatch.setattr(kernels_module, "ASKING_SECONDS", left)
        Kernels(Device(device)).build(POOL)
    # The first start records the driver's cache, the second has no time, the third gets the binary.
    assert builds == ["source", "source", "source", "source", "binary"]


@pytest.mark.parametrize(
    ("asked", "again", "kept"),
    [
        (0.050, [0.022], True),  # PoCL: compiles again for the binary, and caches what it built
        (0.050, [0.026, 0.040, 0.022], True),  # the same on a busy machine
        (0.050, [0.095] * 4, False),  # compiles for the binary, and in each start
    ],
)
def test_binaries_are_stored_unless_driver_caches(
    device: DeviceInfo,
    monkeypatch: pytest.MonkeyPatch,
    asked: float,
    again: list[float],
    kept: bool,
) -> None:
    opened = Kernels(Device(device))
    clock = iter([now for each in again for now in (7.0, 7.0 + each)])
    monkeypatch.setattr(kernels_module.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(opened.programs, "compiled", lambda *_: None)
    assert opened._is_driver_cached(asked, "add", "kernel void f() {}") is kept
    assert next(clock, None) is None


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "bit-flipped": lambda content: content[:100] + bytes([content[100] ^ 4]) + content[101:],
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "garbage": lambda content: b"garbage" * 99,
    "longer": lambda content: content + b"\0",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entry_is_rebuilt_and_replaced(
    device: DeviceInfo, folder: Path, builds: list[str], damage: str
) -> None:
    Kernels(Device(device)).build(ADD)
    path = only_file(folder)
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    Kernels(Device(device)).build(ADD)
    Kernels(Device(device)).build(ADD)
    assert builds == ["source", "source", "binary"]
    assert only_file(folder) == path


def test_refused_binary_is_rebuilt(
    device: DeviceInfo, folder: Path, builds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Kernels(Device(device)).build(ADD)
    loaded = cl.Program

    def refuses(context: cl.Context, first: object, *binaries: object) -> cl.Program:
        if binaries:
            builds.append("refused")
            raise opencl_error(
                cl.LogicError, "clCreateProgramWithBinary", cl.status_code.INVALID_BINARY
            )
        return loaded(context, first)

    monkeypatch.setattr(cl, "Program", refuses)
    Kernels(Device(device)).build(ADD)
    assert builds == ["source", "refused", "source"]


@pytest.mark.parametrize("what", ["Kernel", "Program.build"])
@pytest.mark.parametrize(
    ("status", "is_lost"), [("DEVICE_NOT_AVAILABLE", True), ("INVALID_VALUE", False)]
)
def test_device_loss_is_not_a_build_error(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, what: str, status: str, is_lost: bool
) -> None:
    kernels = Kernels(Device(device))
    if what == "Kernel":
        kernels.build(ADD)

    def fails(*_: object, **__: object) -> None:
        raise opencl_error(cl.RuntimeError, what, getattr(cl.status_code, status))

    monkeypatch.setattr(f"pyopencl.{what}", fails)
    if is_lost:
        with pytest.raises(DeviceError, match=status):
            kernels.check([ADD])
    else:
        assert status in (kernels.check([ADD]) or "")


def test_driver_without_binaries_works(
    device: DeviceInfo, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = cl.Program.get_info

    def get_info(self: cl.Program, parameter: int) -> object:
        if parameter == cl.program_info.BINARIES:
            code = cl.status_code.INVALID_OPERATION
            raise opencl_error(cl.LogicError, "clGetProgramInfo", code)
        return real(self, parameter)

    monkeypatch.setattr(cl.Program, "get_info", get_info)
    kernel, group = Kernels(Device(device)).kernel(ADD)
    assert kernel.function_name == "add_quant8"
    assert group >= 1
    assert not (folder / "programs").exists()


def test_key_has_driver_version_and_source(
    device: DeviceInfo, folder: Path, builds: list[str]
) -> None:
    Kernels(Device(device)).build(ADD)
    opened = Device(device)
    opened.identity = dataclasses.replace(device, driver="another").identity
    Kernels(opened).build(ADD)
    Kernels(opened).build(dataclasses.replace(ADD, defines={"ELEM": "char"}))
    assert builds == ["source"] * 3
    assert len(list((folder / "programs").iterdir())) == 3


def test_unwritable_cache_is_one_warning(
    device: DeviceInfo, folder: Path, builds: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    folder.write_text("a file is in the folder's place")
    with caplog.at_level(logging.WARNING, "delegate"):
        for _ in range(2):
            Kernels(Device(device)).build(ADD)
    assert builds == ["source", "source"]
    assert len(caplog.messages) == 1


def slip(text: str) -> Launch:
    """Return ADD with a macro that breaks its kernel."""
    return dataclasses.replace(ADD, defines={**ADD.defines, "ELEM": text})


def test_build_error_has_file_defines_and_one_log(
    device: DeviceInfo,
    folder: Path,
    builds: list[str],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    kernels = Kernels(Device(device))
    with caplog.at_level(logging.WARNING, "delegate"):
        for _ in range(2):
            with pytest.raises(KernelBuildError) as raised:
                kernels.build(slip("no_such_type"))
    assert builds == ["source"]
    assert raised.value.file == "add.cl"
    assert raised.value.defines == {"USES_ADD_QUANT8": "1", "ELEM": "no_such_type"}
    assert "no_such_type" in raised.value.log
    (message,) = caplog.messages
    assert message == f"{raised.value}; the driver's log:\n{raised.value.log}"
    assert kernels.check([ADD, slip("no_such_type")]) == str(raised.value)
    assert kernels.check([ADD]) is None
    assert len(list((folder / "programs").iterdir())) == 1  # the intact one
    assert [path.name for path in temporary.glob("*.cl")] == []


def test_missing_kernel_is_refused(device: DeviceInfo) -> None:
    missing = dataclasses.replace(ADD, kernel="add_nonesuch")
    reason = Kernels(Device(device)).check([missing])
    assert reason is not None
    assert reason.startswith("clCreateKernel add_nonesuch: CL_INVALID_")


def test_work_group_size_is_limited_by_kernel(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernels = Kernels(Device(device))
    for wanted, expected in ((1, 1), (8, 8)):
        assert kernels.kernel(dataclasses.replace(ADD, group_items=wanted))[1] == expected
    limit = kernels.kernel(dataclasses.replace(ADD, group_items=1 << 20))[1]
    assert 1 <= limit < 1 << 20


def test_launches_have_separate_kernel_objects(device: DeviceInfo) -> None:
    kernels = Kernels(Device(device))
    assert kernels.kernel(ADD)[0] is not kernels.kernel(ADD)[0]


def test_defines_of_a_launch() -> None:
    launch = Launch("f", "f_quant8", 1, 1, {"b": 3, "a": 4}, (), (), {"ELEM": "uchar", "N": 2})
    assert defines_of(launch) == {
        "USES_F_QUANT8": "1",
        "ELEM": "uchar",
        "N": "2",
        "B": "(params[0])",
        "A": "(params[1])",
    }
    assert defines_of(launch, is_argument=True) == defines_of(launch) | {"FIELDS": "2"}


def test_parameter_block_is_an_argument_if_proven_and_small(device: DeviceInfo) -> None:
    names = {"n": 3, **{f"f{i}": i for i in range(9)}}
    launch = dataclasses.replace(ADD, params=names)
    needed = 2 * 8 + 4 * (2 + 10)
    assert may_be_argument(launch, {PARAMS_ARGUMENT}, needed)
    assert not may_be_argument(launch, {PARAMS_ARGUMENT}, needed - 1)
    assert not may_be_argument(launch, {"nearest"}, needed)
    assert not may_be_argument(dataclasses.replace(ADD, params={}), {PARAMS_ARGUMENT}, needed)
    for proven, arguments in (((PARAMS_ARGUMENT,), 3), ((), 4)):
        kernels = Kernels(Device(device, proven=proven))
        assert kernels.is_argument(ADD) == bool(proven)
        assert kernels.kernel(ADD)[0].num_args == arguments


def test_devices_of_a_context_build_with_their_options(device: DeviceInfo) -> None:
    if device.type != "cpu":
        pytest.skip("no GPU's compiler takes our declarations of built-in functions")
    built = []
    for proven in ((), (OWN_BUILTINS,), ()):
        kernels = Kernels(Device(device, proven=proven, shares_context=True))
        assert ("-DOWN_BUILTINS" in kernels.programs.options("add")) == bool(proven)
        built.append(kernels.build(ADD))
    assert built[0] is built[2] is not built[1]


def test_described_defines_have_no_offsets() -> None:
    assert chosen_of(defines_of(ADD, is_argument=True)) == chosen_of(defines_of(ADD))
    assert chosen_of(defines_of(ADD)) == {"USES_ADD_QUANT8": "1", "ELEM": "uchar"}


def test_source_has_macros_includes_and_line_numbers() -> None:
    source = source_of("add", {"ELEM": "uchar"})
    assert source.startswith('#define ELEM uchar\n#line 1 "add.cl"\n')
    assert "#include" not in source
    assert "requantize" in source
