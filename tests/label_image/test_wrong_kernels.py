# SPDX-License-Identifier: Apache-2.0
"""What --fault asks of `tflite-opencl verify`."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import pytest

from label_image import flags
from label_image.wrong_kernels import arguments_of, write_programs
from tflite_opencl.verify import subcommand

GIVEN = ["--use_gpu=true", "--tflite_model", "m.tflite", "--image", "p.jpg", "--fault", "bug"]


def prepared(*arguments: str, picture: int | None = 0) -> Any:
    settings = flags.parse([*GIVEN, *arguments])
    return SimpleNamespace(settings=settings, feeds=SimpleNamespace(picture=picture))


@pytest.mark.parametrize(
    ("more", "picture", "expected"),
    [
        ((), 0, {"image": "p.jpg", "tune": "quick"}),
        (("--tune", "off", "--device", "pocl"), 0, {"tune": "off", "device": "pocl"}),
        (("--precision", "ieee"), 0, {"precision": "ieee"}),
        ((), None, {"image": None, "random": 3}),
    ],
)
def test_verify_takes_the_same_flags(
    more: tuple[str, ...], picture: int | None, expected: dict[str, object]
) -> None:
    parser = argparse.ArgumentParser()
    subcommand.add_arguments(parser)
    given = vars(parser.parse_args(arguments_of(prepared(*more, picture=picture), "bug")))
    wanted = {"fault": "bug", **expected}
    assert {name: given[name] for name in wanted} == wanted


def test_error_of_verify_is_told() -> None:
    # There is no model m.tflite.
    (line,) = write_programs(prepared(), "bug")
    assert line.startswith("bug is not written: ")
    assert "m.tflite" in line
