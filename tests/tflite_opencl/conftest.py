# SPDX-License-Identifier: Apache-2.0
"""The delegate library, compiled once for all tests of subcommands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tflite_opencl.command import main
from tflite_opencl.console.errors import CommandError
from tflite_opencl.interpreters import plugin_library as library


@pytest.fixture(autouse=True)
def _one_context(one_context: None) -> None:
    """Share one context for each device."""


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library for this Python, compiled by the command."""
    path = tmp_path_factory.mktemp("library") / library.NAME
    try:
        library.require_loadable(library.libpython_file())
    except CommandError as error:
        pytest.skip(str(error))
    assert main(["library", str(path)]) == 0
    return path
