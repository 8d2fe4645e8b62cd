# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the attacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.faults import NO_COMPILER, build_library


@pytest.fixture(scope="session")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the library that injects faults into OpenCL calls."""
    library = build_library(tmp_path_factory.mktemp("faults"))
    if library is None:
        pytest.skip(NO_COMPILER)
    return library
