# SPDX-License-Identifier: Apache-2.0
"""The small drawn Llama, and what is made of it, once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.llama import FloatLlama, write_gguf
from tflite_opencl.generate.maker import model_of_gguf
from tflite_opencl.interpreters.runtime import runtime_if_any

PLACES = 136
runs = pytest.mark.skipif(
    runtime_if_any().name != "ai-edge-litert", reason="ai-edge-litert alone runs language models"
)


@pytest.fixture(scope="session")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the drawn GGUF file."""
    return write_gguf(tmp_path_factory.mktemp("gguf") / "drawn.gguf")


@pytest.fixture(scope="session")
def model(gguf_file: Path) -> Path:
    """Return the .tflite file of it, with 136 places."""
    return model_of_gguf(str(gguf_file), "int8", PLACES)


@pytest.fixture(scope="session")
def floats(gguf_file: Path) -> FloatLlama:
    """Return what it computes in floats."""
    return FloatLlama(gguf_file)
