# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that writes down which test makes kernels of which file.

`pytest -p tests.support.kernel_use` with $KERNEL_USE_FOLDER: a JSON file a process in that folder,
kernel file's stem -> ids of the tests.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

from delegate.launch import Launch
from delegate.plan.dispatch.kernels import Kernels

FOLDER_VARIABLE = "KERNEL_USE_FOLDER"
_tests_of: dict[str, set[str]] = defaultdict(set)
_kernel = Kernels.kernel


def _recording_kernel(self: Kernels, launch: Launch) -> object:
    test, _, phase = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")
    if phase == "(call)":
        _tests_of[launch.file].add(test)
    return _kernel(self, launch)


def pytest_configure(config: pytest.Config) -> None:
    Kernels.kernel = _recording_kernel  # type: ignore[method-assign, assignment]


def pytest_unconfigure(config: pytest.Config) -> None:
    Kernels.kernel = _kernel  # type: ignore[method-assign]
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder and _tests_of:
        content = {file: sorted(tests) for file, tests in _tests_of.items()}
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(content))
