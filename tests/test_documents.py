# SPDX-License-Identifier: Apache-2.0
"""The documents' commands and Python, run as they stand in a folder with the files they name."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from delegate import NoDeviceError, list_devices
from tests.support.model import chain_model, op, t

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(language: str) -> list[str]:
    pattern = re.compile(rf"^```{language}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [block for path in DOCUMENTS for block in pattern.findall(path.read_text())]


COMMANDS = [
    line.partition("  #")[0].strip()
    for block in blocks("sh")
    for line in block.splitlines()
    if line
]
MODULES = {"label_image": "label_image", "tflite-delegate-test": "delegate_test"}
SETTING_UP = [line for line in COMMANDS if "apt-get" in line]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small classifier, its labels and a picture, under README's names."""
    picture = t((1, 8, 8, 3), "uint8", 0.5)
    pooled, flat = t((1, 1, 1, 3), "uint8", 0.5), t((1, 3), "uint8", 0.5)
    shares = t((1, 3), "uint8", 1 / 256)
    window = {"stride_w": 8, "stride_h": 8, "filter_width": 8, "filter_height": 8}
    nodes = [
        op("AVERAGE_POOL_2D", [picture], [pooled], {"padding": "VALID", **window}),
        op("RESHAPE", [pooled], [flat], {"new_shape": [1, 3]}),
        op("SOFTMAX", [flat], [shares], {"beta": 0.1}),
    ]
    (tmp_path / "model.tflite").write_bytes(chain_model(nodes))
    (tmp_path / "labels.txt").write_text("red\ngreen\nblue\n")
    Image.new("RGB", (40, 30), (51, 204, 102)).save(tmp_path / "picture.jpg")
    return tmp_path


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_two_commands_set_everything_up() -> None:
    assert len(SETTING_UP) == 2
    main_job, tests = SETTING_UP
    assert main_job.endswith("&& label_image --use_gpu --image grace_hopper.bmp")
    assert tests.endswith("&& python -m pytest -n auto --dist worksteal")


@pytest.mark.device
@pytest.mark.parametrize("command", [line for line in COMMANDS if line not in SETTING_UP])
def test_the_command_works(command: str, folder: Path) -> None:
    script, *arguments = shlex.split(command)
    if script != "python":
        arguments = ["-m", MODULES[script], *arguments]
    try:
        devices = list_devices()
    except NoDeviceError as error:
        pytest.skip(str(error))
    if "--device" in arguments:
        device = arguments[arguments.index("--device") + 1]
        if not any(info.matches(device) for info in devices):
            pytest.skip(f"no device {device} here")
    done = run([sys.executable, *arguments], folder)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.device
def test_the_python_works(folder: Path) -> None:
    code, _ = blocks("python")
    pytest.importorskip("ai_edge_litert", reason="README's Python is for ai-edge-litert")
    done = run([sys.executable, "-c", code], folder)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(
        r"0 AVERAGE_POOL_2D on .+\n1 RESHAPE on .+\n2 SOFTMAX on .+\n", done.stdout
    ), done.stdout


@pytest.mark.device
def test_the_python_without_tflite_works(folder: Path) -> None:
    _, code = blocks("python")
    done = run([sys.executable, "-c", code], folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(32, 3) True\n"
