# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import argparse
import importlib.util

import pytest

from tflite_opencl.cli.scheduler import Scheduler, require_distributed, scheduler
from tflite_opencl.console.errors import RunError


@pytest.mark.parametrize(
    ("text", "workers"), [("tcp://10.0.0.1:8786", 0), ("tls://host:1", 0), ("local:4", 4)]
)
def test_address_or_local_workers(text: str, workers: int) -> None:
    assert scheduler(text) == Scheduler(text, workers)


@pytest.mark.parametrize(
    "text", ["", "local", "local:", "local:0", "local:x", "tcp:host:1", "tcp://host", "http://h:1"]
)
def test_invalid_words_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"neither|positive|number"):
        scheduler(text)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(RunError, match=r"pip install tflite-opencl\[cluster\]"):
        require_distributed()
