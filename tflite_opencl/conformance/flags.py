# SPDX-License-Identifier: Apache-2.0
"""The command line of tflite-delegate-test; no file or device is opened here."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NoReturn

from tflite_opencl.common.environment import device_asked
from tflite_opencl.common.errors import UsageError
from tflite_opencl.common.exit_codes import EXIT_CODES, LOST, NO_DEVICE, codes_text
from tflite_opencl.common.flag_values import positive
from tflite_opencl.common.flags import add_flag, add_flags
from tflite_opencl.common.help import HelpFormatter, examples_text
from tflite_opencl.common.words import did_you_mean, with_underscores

RUNTIMES = {"litert": "ai-edge-litert", "tflite-runtime": "tflite-runtime"}


EXAMPLES = (
    ("tflite-delegate-test --quick", "a small sample, on the first OpenCL device"),
    ("tflite-delegate-test --delegate ./libteflon.so --tolerance teflon", "a library's delegate"),
    ("tflite-delegate-test --device 0 --junit results.xml --baseline fails.txt",
     "all cases, in continuous integration: known failures do not count"),
    ("tflite-delegate-test --reduce conv_2d/int8/NAME", "make a failing case small"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line asks for."""

    delegate: str  # "opencl", "xnnpack", "python:MODULE:CALLABLE" or a library's path
    delegate_options: dict[str, str]
    device: str | None
    device_profile: str | None  # a name or a .toml file
    runtime: str | None
    models: str | None  # a folder
    list: bool
    filter: str | None
    sample: int | None
    seed: int
    quick: bool
    heavy: bool
    alternatives: bool
    tolerance: int | None  # quanta; None: Teflon's
    jobs: int
    timeout: float  # seconds a case
    output: str
    resume: bool
    baseline: str | None
    update_baseline: bool
    skips: Sequence[str]
    flakes: Sequence[str]
    expect_device: str | None
    allow_not_delegated: bool
    junit: str | None
    ktap: str | None
    lava: str | None
    json: str | None
    html: str | None
    coverage: str | None
    reduce: str | None
    version: bool


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def parse(arguments: Sequence[str]) -> Settings:
    """Return the settings; --help ends the process as argparse does.

    Raises: UsageError: an unknown flag, a missing or a wrong value.
    """
    made = parser()
    known, unknown = made.parse_known_args(with_underscores(arguments))
    if unknown:
        meant = did_you_mean(unknown[0], made._option_string_actions)
        raise UsageError(f"unrecognized arguments: {' '.join(unknown)}{meant}")
    given = vars(known)
    if given["update_baseline"] and not given["baseline"]:
        raise UsageError("--update_baseline needs --baseline FILE")
    if given["device_profile"]:
        if given["delegate"] != "opencl":
            raise UsageError("--device_profile is for --delegate opencl")
        profile = given["device_profile"]
        path = str(Path(profile).resolve()) if profile.endswith(".toml") else profile
        given["delegate_options"] = {**given["delegate_options"], "device_profile": path}
    if given["alternatives"] and not re.match("opencl$|python:", given["delegate"]):
        raise UsageError("--alternatives is for --delegate opencl: others do not tell theirs")
    given["device"] = device_asked(given["device"])
    if given["quick"] and given["sample"] is not None:
        raise UsageError("--quick and --sample exclude each other")
    return Settings(**{entry.name: given[entry.name] for entry in fields(Settings)})


def parser() -> argparse.ArgumentParser:
    """Return a new parser of all flags."""
    made = _Parser(
        prog="tflite-delegate-test",
        description="Run a conformance suite on a TFLite delegate, beside the reference kernels.",
        epilog=f"{codes_text(*(code for code in EXIT_CODES if code not in (NO_DEVICE, LOST)))}\n\n"
        f"{examples_text(EXAMPLES)}",
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    add_flag(made, "version")
    for group in (_subject, _cases, _run, _expectations, _outputs):
        group(made)
    return made


def _subject(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--delegate",
        default="opencl",
        metavar="opencl|xnnpack|PATH.so",
        help="the delegate under test; also python:MODULE:CALLABLE (default: %(default)s)",
    )
    add(
        "--delegate_options",
        type=_options,
        default={},
        metavar="K:V;K:V",
        help="options for the delegate",
    )
    add_flags(parser, "device_profile", "device")
    add(
        "--runtime",
        type=_runtime,
        metavar="|".join(RUNTIMES),
        help="which installed TFLite calls the delegate",
    )


def _cases(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_flag(parser, "models", more=" to run, too")
    add_flag(parser, "list", more=": the cases' names")
    add("--filter", type=_regex, metavar="REGEX", help="only cases whose name has a match")
    add("--sample", type=positive, metavar="N", help="only N cases, a fair share of each op")
    add("--seed", type=int, default=0, metavar="S", help="which sample (default: %(default)s)")
    add("--quick", action="store_true", help="a small sample and the behaviour cases")
    add("--heavy", action="store_true", help="also cases that take the reference kernels long")


def _run(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--alternatives",
        action="store_true",
        help="run each case once for each alternative that opencl has for its nodes",
    )
    add_flag(parser, "tolerance", 0, "; teflon: 2 an op, 8 a model", _tolerance, metavar="Q|teflon")
    add("--jobs", type=positive, default=1, metavar="N", help="worker processes at a time")
    add_flag(parser, "timeout", 60.0, ": a case, or each of its alternatives")
    add(
        "--output",
        default="delegate-test-results",
        metavar="DIR",
        help="the folder of results.csv and the rest (default: %(default)s)",
    )
    add_flag(parser, "resume", more=", by what is in --output")


def _expectations(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--baseline", metavar="FILE", help="known failures, lines NAME,Fail")
    add("--update_baseline", action="store_true", help="write what failed into --baseline")
    add(
        "--skips",
        action="append",
        default=[],
        metavar="FILE",
        help="cases not to run, a regular expression a line",
    )
    add(
        "--flakes",
        action="append",
        default=[],
        metavar="FILE",
        help="cases that fail at times, a regular expression a line",
    )
    add(
        "--expect_device",
        type=_regex,
        metavar="REGEX",
        help="run nothing unless the device's name has a match",
    )
    add(
        "--allow_not_delegated",
        action="store_true",
        help="a case of which the delegate takes nothing is not unexpected",
    )


def _outputs(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    for name, what in (
        ("junit", "JUnit's XML"),
        ("ktap", "the kernel's TAP"),
    ):
        add(f"--{name}", metavar="FILE", help=f"write {what}; - is stdout")
    add_flag(parser, "json")
    add_flag(parser, "html", more="; it has a matrix of ops and types")
    for name, what in (
        ("lava", "LAVA's signals"),
        ("coverage", "the table op x type in Markdown, or renew a page that marks its place"),
    ):
        words = f"write {what} (default: stdout)"
        add(f"--{name}", nargs="?", const="-", metavar="FILE", help=words)
    add(
        "--reduce",
        metavar="NAME|MODEL.tflite",
        help="shrink a failing case to the smallest model and input that still fail",
    )


def _options(text: str) -> dict[str, str]:
    found = {}
    for pair in filter(None, text.split(";")):
        key, colon, value = pair.partition(":")
        if not colon or not key:
            raise argparse.ArgumentTypeError(f"'{pair}' is not KEY:VALUE")
        found[key] = value
    return found


def _runtime(text: str) -> str:
    if text not in {*RUNTIMES, *RUNTIMES.values()}:
        raise argparse.ArgumentTypeError(f"'{text}' is none of {', '.join(RUNTIMES)}")
    return RUNTIMES.get(text, text)


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"'{text}': {error}") from None
    return text


def _tolerance(text: str) -> int | None:
    if text == "teflon":
        return None
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"'{text}' is neither a number of quanta nor teflon")
    return int(text)
