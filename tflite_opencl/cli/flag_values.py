# SPDX-License-Identifier: Apache-2.0
"""Converters from a flag's text to its value; each raises a one-line ArgumentTypeError."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

from delegate import Options
from delegate.inspect import PRECISIONS
from tflite_opencl.console.errors import UsageError

N = TypeVar("N", int, float)
MOST_SECONDS = 1_000_000
MOST_PIXELS = 1 << 15  # side length of a model's input
MOST_PICTURES = 65_536  # per batch
TRUTH = {"true": True, "1": True, "false": False, "0": False}


def truth(text: str) -> bool:
    """Return whether the text means true."""
    try:
        return TRUTH[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"'{text}' is not true, false, 1 or 0") from None


COMPARE_MODES = ("short", "all")


def compare_mode(text: str) -> bool | str:
    """Return whether to compare, or one of COMPARE_MODES."""
    if text in COMPARE_MODES:
        return text
    try:
        return truth(text)
    except argparse.ArgumentTypeError:
        modes = " or ".join(COMPARE_MODES)
        raise argparse.ArgumentTypeError(f"'{text}' is not true, false, {modes}") from None


def integer(text: str) -> int:
    """Return a 32-bit integer, the type that TFLite takes."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None
    if not -(2**31) <= number < 2**31:
        raise argparse.ArgumentTypeError(f"'{text}' does not fit into 32 bits")
    return number


def real(text: str) -> float:
    """Return a finite number."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number")
    return number


def within(
    convert: Callable[[str], N], least: float, most: float, otherwise: str
) -> Callable[[str], N]:
    """Restrict a converter to a range; `otherwise`: the message for other values."""

    def limited(text: str) -> N:
        if not least <= (number := convert(text)) <= most:
            raise argparse.ArgumentTypeError(f"'{text}' {otherwise}")
        return number

    return limited


def at_most(most: int, convert: Callable[[str], N]) -> Callable[[str], N]:
    """Restrict a converter to values up to a limit."""
    return within(convert, -math.inf, most, f"is more than {most}")


positive = within(integer, 1, math.inf, "is not a positive number")
not_negative = within(integer, 0, math.inf, "is less than 0")
threads = at_most(1024, positive)  # TFLite aborts if it cannot start all threads
part = within(real, 0, 1, "is not from 0 to 1")
# 32-bit timers take them as milliseconds.
seconds = at_most(MOST_SECONDS, within(real, 0, math.inf, "is less than 0 seconds"))


def thread_count(text: str) -> int:
    """Return a number of threads, or -1."""
    if text.strip() == "-1":
        return -1
    if integer(text) < 1:
        raise argparse.ArgumentTypeError(
            f"'{text}' is neither a positive number nor -1 (TFLite's own choice)"
        )
    return threads(text)


def divisor(text: str) -> float:
    """Return a finite number that is not 0."""
    if (number := real(text)) == 0:
        raise argparse.ArgumentTypeError("pixels cannot be divided by 0")
    return number


def duration(text: str) -> float:
    """Return a positive number of seconds."""
    if not (number := seconds(text)):
        raise argparse.ArgumentTypeError("0 seconds are too few")
    return number


def minutes(text: str) -> float:
    """Return a positive number of minutes."""
    if not 0 < (number := real(text)) <= MOST_SECONDS / 60:
        raise argparse.ArgumentTypeError(f"'{text}' is no usable number of minutes")
    return number


def height_width(text: str) -> tuple[int, int]:
    """Return a height and a width."""
    height, _, width = text.lower().partition("x")
    try:
        found = positive(height), positive(width)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"'{text}' is not HEIGHTxWIDTH, as 224x224") from None
    if max(found) > MOST_PIXELS:
        raise argparse.ArgumentTypeError(f"'{text}': at most {MOST_PIXELS} pixels a side")
    return found


def shard(text: str) -> tuple[int, int]:
    """Return the index and the number of shards."""
    number, _, count = text.partition("/")
    which, parts = positive(number), positive(count)
    if which > parts:
        raise argparse.ArgumentTypeError(f"'{text}' is no part: {which} is more than {parts}")
    return which, parts


def names(text: str) -> tuple[str, ...]:
    """Return comma-separated names."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def one_of(*words: str) -> Callable[[str], str]:
    """Return a converter that accepts only these words."""

    def chosen(text: str) -> str:
        if text not in words:
            *first, last = filter(None, words)
            raise argparse.ArgumentTypeError(f"'{text}' is not {', '.join(first)} or {last}")
        return text

    return chosen


def placement(text: str) -> str:
    """Return a value of Options.placement."""
    try:
        return Options(placement=text).placement
    except ValueError:
        words = "device, fastest, offload or offload:FACTOR, of at least 1"
        raise argparse.ArgumentTypeError(f"'{text}' is not {words}") from None


def delegate_options(text: str) -> dict[str, str]:
    """Return an external delegate's options."""
    options = {}
    for item in filter(None, text.split(";")):
        key, *values = item.split(":")
        if not key or len(values) != 1:
            raise argparse.ArgumentTypeError(f"'{item}' is not key:value; as in \"k1:v1;k2:v2\"")
        options[key] = values[0]
    return options


def named_file(text: str) -> tuple[str, str]:
    """Return an input's name and its file."""
    name, _, file = text.partition("=")
    if not name or not file:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=FILE")
    return name, file


def path(text: str) -> str:
    """Return the name of a file or folder."""
    if not text:
        raise argparse.ArgumentTypeError("'' is no name of a file or folder")
    return text


class OutputPath(str):
    """The path of an output file; all other paths are inputs."""


class OutputFolder(OutputPath):
    """The path of a folder of output files."""


def output_path(text: str) -> OutputPath:
    """Return the path of an output file."""
    return OutputPath(path(text))


def output_folder(text: str) -> OutputFolder:
    """Return the path of a folder of output files."""
    return OutputFolder(path(text))


def precision_of(precision: str, allow_fp16: bool, placement: str = "device") -> str:
    """Return Options.precision by both flags.

    Raises: UsageError: they name two, or `placement` would leave the bits to timings.
    """
    _, fp16, ieee = PRECISIONS
    if allow_fp16 and precision == ieee:
        raise UsageError("--allow_fp16 is --precision fp16, but --precision is ieee: give one")
    if precision == ieee and placement != "device":
        raise UsageError(
            f"--placement {placement} leaves the bits of floats to timings: not with ieee"
        )
    return fp16 if allow_fp16 else precision
