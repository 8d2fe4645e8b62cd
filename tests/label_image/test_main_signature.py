# SPDX-License-Identifier: Apache-2.0
"""label_image --signature: which of a file's graphs classifies the picture."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from delegate import DeviceInfo
from tests.support.command import Run
from tests.support.subgraphs import two_signatures
from tflite_opencl.interpreters.interpreter import allocated
from tflite_opencl.interpreters.runtime import find_runtime

NAMED = ("-m", "two.tflite", "-i", "picture.bmp", "--signature")


@pytest.fixture(autouse=True)
def _model(files: Path) -> None:
    (files / "two.tflite").write_bytes(two_signatures())


@pytest.mark.parametrize("isolate", ["0", "1"])
def test_the_classes_are_the_signature_s(run: Run, device: DeviceInfo, isolate: str) -> None:
    told = ("--use_gpu", "1", "--device", str(device.index), "--tune", "off")
    ran = run(*NAMED, "graph 1", *told, "--isolate", isolate, "--output_dir", "out")
    assert ran.code == 0, ran.err
    runner = allocated(find_runtime(), "two.tflite", "reference").get_signature_runner("graph 1")
    (scores,) = runner(x0=np.asarray(Image.open("picture.bmp"))[np.newaxis]).values()
    assert np.load("out/scores.npy").tobytes() == scores.tobytes()
    assert "equal" in ran.table, ran.err


def test_a_wrong_name_is_one_line(run: Run) -> None:
    ran = run(*NAMED, "decode")
    line = "ERROR: there is no signature 'decode'; the model has 'graph 0', 'graph 1'"
    assert (ran.code, ran.err[-1]) == (64, line)


def test_a_delegate_library_takes_nodes_of_the_first_graph_alone(run: Run) -> None:
    ran = run(*NAMED, "graph 1", "--external_delegate_path", "none.so")
    line = "ERROR: --signature: TFLite tells what a delegate library takes of no other graph"
    assert (ran.code, ran.err[-1]) == (255, line)
