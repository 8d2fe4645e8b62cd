# SPDX-License-Identifier: Apache-2.0
"""Real models and pictures of ../shared, beside the checkout; tests skip without it."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).parents[3] / "shared"


def model_path(name: str) -> str:
    """Return the file of a real model, or skip the test."""
    return _path("models", f"{name}.tflite")


def picture_paths(count: int) -> list[str]:
    """Return the first pictures in order of their names, or skip the test."""
    paths = sorted(Path(_path("images", "imagenet")).iterdir())
    return [str(path) for path in paths if path.suffix != ".csv"][:count]


def picture_path(name: str) -> str:
    """Return the file of one picture, or skip the test."""
    return _path("images", name)


def _path(*parts: str) -> str:
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"../shared/{'/'.join(parts)} is not there")
    return str(path)
