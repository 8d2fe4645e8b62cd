# SPDX-License-Identifier: Apache-2.0
"""A small random Llama, its model and float reference, once for all tests."""

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
    """Return the GGUF file."""
    return write_gguf(tmp_path_factory.mktemp("gguf") / "drawn.gguf")


@pytest.fixture(scope="session")
def model(gguf_file: Path) -> Path:
    """Return its .tflite file, for 136 tokens."""
    return model_of_gguf(str(gguf_file), "int8", PLACES)


@pytest.fixture(scope="session")
def floats(gguf_file: Path) -> FloatLlama:
    """Return its float reference."""
    return FloatLlama(gguf_file)
