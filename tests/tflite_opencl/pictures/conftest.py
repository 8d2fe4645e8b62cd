# SPDX-License-Identifier: Apache-2.0
"""Fixtures of picture tests: loading, and expecting an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.pictures import Loader, Pixels
from tflite_opencl.pictures.decode import PictureError
from tflite_opencl.pictures.image import load_picture


@pytest.fixture
def load(tmp_path: Path) -> Loader:
    def load_bytes(data: bytes) -> Pixels:
        path = tmp_path / "picture"
        path.write_bytes(data)
        return load_picture(path)

    return load_bytes


@pytest.fixture
def refuse(load: Loader) -> Callable[[bytes], str]:
    """Return the error for a file, which must be one line with its name."""

    def text_of_error(data: bytes) -> str:
        with pytest.raises(PictureError) as caught:
            load(data)
        text = str(caught.value)
        assert text.startswith("cannot read picture ")
        assert len(text.splitlines()) == 1
        return text

    return text_of_error
