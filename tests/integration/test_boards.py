# SPDX-License-Identifier: Apache-2.0
"""The integration test on boards: real pictures, all ops, bit-exactness, times and CPU load.

It runs on boards with galcore, or with a Mesa whose rusticl offers etnaviv, msm, panfrost or v3d.
Elsewhere it skips and names what is missing. TEST_BOARDS=pocl,llvmpipe runs it on a CPU.
TEST_BOARDS_RESULTS=FILE collects measurements, one line of JSON for each run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from delegate import DeviceInfo, NoDeviceError, list_devices
from delegate.plan.dispatch.survey import probe_platforms
from tests.support.compare import assert_exact, oracle
from tests.support.model import chain_model
from tests.support.nodes import valid_nodes
from tests.support.shared import SHARED
from tflite_opencl.boards.advice import FAMILIES, Situation, devices_of, family
from tflite_opencl.boards.board import read_board

ROOT = Path(__file__).resolve().parents[2]
BOARDS = tuple(each.name for each in FAMILIES if each.kernel_drivers)
WANTED = tuple(filter(None, os.environ.get("TEST_BOARDS", "").split(","))) or BOARDS
RESULTS = os.environ.get("TEST_BOARDS_RESULTS")
MODEL = "mobilenet_v1_1.0_224_quant"
# Without ../shared, the embedded model and picture are used.
PICTURES = ("grace_hopper_517x606.bmp", "imagenet/019_bird.bmp", "imagenet/088_parrot.jpg")
# L2_POOL_2D is float, whose results depend on the CPU: TFLite on aarch64 fuses multiply-adds.
OPS = sorted({*valid_nodes("int8")} - {"L2_POOL_2D"})
EXTERNAL = ("libteflon.so", "libvx_delegate.so")
RUNS = "5"


@cache
def devices() -> tuple[DeviceInfo, ...]:
    try:
        return list_devices()
    except NoDeviceError:
        return ()


@pytest.fixture(scope="module", params=WANTED)
def board_device(request: pytest.FixtureRequest) -> DeviceInfo:
    """Return the first device of a family, or skip with what is missing."""
    of = family(request.param)
    enabled = os.environ.get("RUSTICL_ENABLE", "")
    missing = Situation(read_board(), probe_platforms(), devices(), enabled).obstacle(of)
    if missing is not None:
        if "TEST_BOARDS" in os.environ:
            pytest.fail(f"TEST_BOARDS={request.param}: {missing}")
        pytest.skip(f"{request.param}: {missing}")
    return devices_of(of, devices())[0]


def _pictures() -> list[str]:
    paths = [str(SHARED / "images" / name) for name in PICTURES]
    return paths if all(map(os.path.exists, paths)) else ["grace_hopper.bmp"]


def classify(picture: str, *flags: str) -> dict[str, Any]:
    """Return label_image's JSON; a failure shows its stderr."""
    model = SHARED / "models" / f"{MODEL}.tflite"
    labels = SHARED / "labels" / "imagenet_labels.txt"
    with_model = ["--tflite_model", str(model), "--labels", str(labels)] if model.exists() else []
    command = ["label_image", *with_model, "--image", picture, "--json", "-", "--count", RUNS]
    done = subprocess.run(
        [sys.executable, "-m", *command, *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def record(info: DeviceInfo, what: str, document: dict[str, Any]) -> None:
    """Append the measurements to RESULTS, if set."""
    if RESULTS is None:
        return
    numbers = ("average_ms", "min_ms", "median_ms", "load_ms", "cpu_load")
    row = {
        "board": read_board().model,
        "device": f"{info.platform}, {info.name}, {info.driver}",
        "what": what,
        **{
            path: {name: document[path][name] for name in numbers}
            for path in ("cpu", "gpu", "external")
            if path in document
        },
    }
    with open(RESULTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


@pytest.mark.parametrize("picture", _pictures(), ids=lambda path: Path(path).name)
def test_label_image_is_exact_without_fallback(board_device: DeviceInfo, picture: str) -> None:
    done = classify(picture, "--use_gpu", "--device", str(board_device.index))
    assert "failure" not in done
    ours = done["gpu"]
    assert (ours["platform"], ours["device"], ours["driver"]) == (
        board_device.platform,
        board_device.name,
        board_device.driver,
    )
    assert ours["not_delegated"] == []
    assert ours["delegated"] == ours["nodes"] > 0
    assert ours["partitions"] == 1
    assert done["max_difference_quanta_reference"] == 0
    assert ours["results"][0]["score"] > 0
    assert ours["average_ms"] > 0
    assert done["cpu"]["cpu_load"] > 0
    record(board_device, f"label_image {Path(picture).name}", done)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("name", OPS)
def test_op_is_exact(board_device: DeviceInfo, name: str, dtype: str) -> None:
    nodes = valid_nodes(dtype, channels=7, size=6)
    if name not in nodes:
        pytest.skip(f"{name} has no kernels of {dtype} in TFLite")
    model = chain_model([nodes[name]])
    try:
        cpu_kernels = oracle(model)
    except (RuntimeError, ValueError) as error:
        pytest.skip(f"this TFLite does not run {name}: {error}")
    if (name, dtype) == ("SUM", "int8"):
        cpu_kernels = "builtin"  # ai-edge-litert's reference kernel of it is wrong
    assert_exact(model, board_device, cpu_kernels=cpu_kernels, min_nodes_per_partition=1)


@pytest.mark.parametrize("library", EXTERNAL)
def test_other_delegate(board_device: DeviceInfo, library: str) -> None:
    paths = [path for path in read_board().delegates if Path(path).name == library]
    if not paths:
        pytest.skip(f"{library} is not installed")
    done = classify(_pictures()[0], "--external_delegate_path", paths[0])
    assert done["external"]["results"]
    record(board_device, f"{library} {Path(_pictures()[0]).name}", done)
