# SPDX-License-Identifier: Apache-2.0
"""What a board lacks, named exactly, and the next steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from delegate import DeviceInfo
from delegate.inspect import PlatformInfo
from tests.support.boards import BOARDS, RecordedNode, write_icd
from tflite_opencl.boards.advice import FAMILIES, Situation, devices_of, family
from tflite_opencl.boards.board import Board, read_board
from tflite_opencl.boards.steps import one_command

RUSTICL = PlatformInfo("rusticl", "OpenCL 3.0", "Mesa/X.org", (), None)
POCL = PlatformInfo("Portable Computing Language", "OpenCL 3.0", "pocl", ("pthread",), None)
GALCORE = DeviceInfo(
    0, "Vivante OpenCL Platform", "OpenCL 1.2", "Vivante OpenCL Device GC7000L.6214.0000",
    "Vivante Corporation", "OpenCL 1.2", "V6.2.4", "gpu",
)  # fmt: skip
MALI = DeviceInfo(
    1, "rusticl", "OpenCL 3.0", "Mali-G52 r1 (Panfrost)", "Arm", "OpenCL 3.0", "24.3.0", "gpu"
)


def board_of(name: str, root: Path, icd: str = "") -> Board:
    path = BOARDS[name].write(root)
    if icd:
        write_icd(path, "driver", icd)
    return read_board(path)


def steps_of(board: Board) -> list[str]:
    return [step.text for step in Situation(board).next_steps()]


@pytest.mark.parametrize(
    ("name", "of", "icd", "platforms", "rusticl_enable", "expected"),
    [
        ("rpi4", "vivante", "", (), "", "a vivante,gc node is not in the device tree"),
        ("vim3", "vivante", "", (), "",
         "the kernel driver is there (etnaviv, panfrost), but no OpenCL driver (no .icd file) is "
         "installed"),
        ("vim3", "vivante", "/usr/lib/libx.so", (), "",
         "/etc/OpenCL/vendors/driver.icd names /usr/lib/libx.so, which is not there"),
        ("vim3", "vivante", "libx.so", (), "",
         "no OpenCL platform was found, though there are .icd files"),
        ("vim3", "vivante", "libx.so", (RUSTICL,), "",
         "platform rusticl shows it only with RUSTICL_ENABLE=etnaviv"),
        ("vim3", "vivante", "libx.so", (RUSTICL,), "etnaviv",
         "platform rusticl has no etnaviv device: no release of Mesa has OpenCL on etnaviv (its "
         "merge request 18986 is not merged)"),
        ("vim3", "vivante", "libx.so", (POCL,), "",
         "no platform has such a device; there are Portable Computing Language"),
        ("rpi4", "v3d", "libx.so", (RUSTICL,), "panfrost",
         "platform rusticl shows it only with RUSTICL_ENABLE=v3d"),
        ("rpi4", "v3d", "libx.so", (POCL, RUSTICL), "v3d:0",
         "platform rusticl has no v3d device: this Mesa was built without it, or is older than "
         "24.2 (Debian 13 has 25.0)"),
        ("oneplus6", "msm", "libx.so", (RUSTICL,), "msm",
         "platform rusticl has no freedreno device: this Mesa was built without it, or is older "
         "than 24.3 (Debian 13 has 25.0)"),
        ("rpi4", "pocl", "", (), "", "no OpenCL driver (no .icd file) is installed"),
    ],
)  # fmt: skip
def test_obstacles(
    name: str, of: str, icd: str, platforms: tuple[PlatformInfo, ...], rusticl_enable: str,
    expected: str, tmp_path: Path,
) -> None:  # fmt: skip
    board = board_of(name, tmp_path, icd)
    assert Situation(board, platforms, (), rusticl_enable).obstacle(family(of)) == expected


def test_hardware_without_a_driver(tmp_path: Path) -> None:
    bare = replace(
        BOARDS["librem5"],
        nodes=(RecordedNode("/soc@0/gpu@38000000", ("vivante,gc",)),),
        drm=(),
        files=(),
    )
    board = read_board(bare.write(tmp_path))
    assert Situation(board).obstacle(family("vivante")) == (
        "no kernel driver is bound to /soc@0/gpu@38000000 (etnaviv or galcore)"
    )
    assert steps_of(board)[0] == (
        "load the kernel driver etnaviv or galcore for /soc@0/gpu@38000000 (Vivante GPU)"
    )


def test_npu_needs_newer_kernel(tmp_path: Path) -> None:
    node = RecordedNode("/soc/npu@ff100000", ("vivante,gc",))
    old = replace(BOARDS["vim3"], nodes=(node,), drm=(), files=(), kernel="6.1.0-13-arm64")
    assert steps_of(read_board(old.write(tmp_path / "old")))[0] == (
        "use a kernel from 6.7 on: /soc/npu@ff100000 (Vivante NPU) needs it"
    )
    new = replace(old, kernel="6.7")
    assert steps_of(read_board(new.write(tmp_path / "new")))[0].startswith("load")


def test_disabled_node(tmp_path: Path) -> None:
    node = RecordedNode("/soc/npu@ff100000", ("vivante,gc",), status="disabled")
    board = read_board(replace(BOARDS["vim3"], nodes=(node,), drm=(), files=()).write(tmp_path))
    missing = "/soc/npu@ff100000 is disabled in the device tree"
    assert Situation(board).obstacle(family("vivante")) == missing
    assert steps_of(board)[0].startswith("enable /soc/npu@ff100000 (Vivante NPU)")


@pytest.mark.parametrize(
    ("name", "of", "path"),
    [("imx8mp", "vivante", "/dev/galcore"), ("rpi4", "v3d", "/dev/dri/renderD128")],
)
def test_file_without_permission(name: str, of: str, path: str, tmp_path: Path) -> None:
    board = board_of(name, tmp_path)
    closed = replace(
        board, files=tuple(replace(each, may_open=False, mode="crw-------") for each in board.files)
    )
    expected = f"{path} is not permitted to this user (crw-------)"
    assert Situation(closed).obstacle(family(of)) == expected
    assert any(f"let this user open {path}" in step for step in steps_of(closed))


def test_no_obstacle_with_device() -> None:
    nothing = read_board("/nonexistent")
    assert Situation(nothing, (), (GALCORE, MALI)).obstacle(family("vivante")) is None
    assert Situation(nothing, (), (GALCORE, MALI)).obstacle(family("panfrost")) is None
    assert devices_of(family("vivante"), (GALCORE, MALI)) == [GALCORE]
    assert devices_of(family("panfrost"), (GALCORE, MALI)) == [MALI]
    assert {each.name for each in FAMILIES if devices_of(each, (GALCORE, MALI))} == {
        "vivante",
        "panfrost",
    }


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("vim3", ["libteflon.so", "galcore with its OpenCL library instead of etnaviv",
                  "RUSTICL_ENABLE=panfrost"]),
        ("librem5", ["galcore with its OpenCL library instead of etnaviv"]),
        ("imx8mp", ["galcore's own OpenCL library",
                    "--external_delegate_path=/usr/lib/libvx_delegate.so"]),
        ("oneplus6", ["RUSTICL_ENABLE=freedreno"]),
        ("rpi4", ["RUSTICL_ENABLE=v3d"]),
        ("rk3588", ["RUSTICL_ENABLE=panfrost"]),
    ],
)  # fmt: skip
def test_next_steps(name: str, steps: list[str], tmp_path: Path) -> None:
    output = steps_of(board_of(name, tmp_path))
    for step in steps:
        assert any(step in each for each in output), output
    assert len(output) == len({*output})


def test_next_step_with_working_or_failing_device(tmp_path: Path) -> None:
    board = board_of("vim3", tmp_path, "libx.so")
    known = Situation(board, (RUSTICL,), (MALI,), "panfrost")
    found = known.next_steps(["Odd device: its self-test died"])
    output = [step.text for step in found]
    assert (
        "leave out the device that fails, or mend its driver: Odd device: its self-test died"
        in (output)
    )
    assert output[-1] == "run: label_image --use_gpu --device 1 --image picture.jpg"
    assert not any("RUSTICL_ENABLE=panfrost" in each for each in output)
    run = "label_image --use_gpu --device 1 --image picture.jpg"
    assert one_command(found, has_gpu=True) == run
