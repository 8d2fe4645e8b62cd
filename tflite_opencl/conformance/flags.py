# SPDX-License-Identifier: Apache-2.0
"""The command line of tflite-delegate-test; opens no file or device."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tflite_opencl.cli.command_line import Parser
from tflite_opencl.cli.flag_values import OutputPath, minutes, positive
from tflite_opencl.cli.flags import add_flag, device_asked
from tflite_opencl.console.errors import UsageError
from tflite_opencl.console.exit_codes import EXIT_CODES, LOST, NO_DEVICE, codes_text

RUNTIMES = {"litert": "ai-edge-litert", "tflite-runtime": "tflite-runtime"}
EXAMPLES = (
    ("tflite-delegate-test --quick", "a small sample, on the first OpenCL device"),
    ("tflite-delegate-test --delegate ./libteflon.so --tolerance teflon", "a library's delegate"),
    ("tflite-delegate-test --device 0 --junit results.xml --baseline fails.txt",
     "all cases, in continuous integration: known failures do not count"),
    ("tflite-delegate-test --quick --scheduler tcp://HOST:8786", "a sample, on each board"),
    ("tflite-delegate-test --reduce conv_2d/int8/NAME", "make a failing case small"),
)  # fmt: skip


def _options(text: str) -> dict[str, str]:
    pairs = [pair.partition(":") for pair in text.split(";") if pair]
    for key, colon, value in pairs:
        if not colon or not key:
            raise argparse.ArgumentTypeError(f"'{key}{colon}{value}' is not KEY:VALUE")
    return {key: value for key, _, value in pairs}


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


def _build(text: str) -> str:
    if not re.fullmatch("[a-z0-9_]+:.+", text):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not ORIGIN:ID, with a-z, 0-9 and _ in ORIGIN"
        )
    return text


TEFLON = 6  # quanta. Source: Mesa's test_teflon.cpp since its commit 1b48f615


def _tolerance(text: str) -> int:
    if text == "teflon":
        return TEFLON
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"'{text}' is neither a number of quanta nor teflon")
    return int(text)


_SWITCH: dict[str, Any] = {"action": "store_true"}
_FILE: dict[str, Any] = {"metavar": "FILE"}
_FILES: dict[str, Any] = {"action": "append", "default": [], **_FILE}
_OUTPUT: dict[str, Any] = {"type": OutputPath, **_FILE}
_ON_STDOUT: dict[str, Any] = {"nargs": "?", "const": "-", **_OUTPUT}
_REGEX: dict[str, Any] = {"type": _regex, "metavar": "REGEX"}
# Name, help, settings; without help it is a flag shared by commands.
_FLAGS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("version", "", {}),
    ("quiet", "", {}),
    # the delegate under test
    ("delegate", "the delegate under test; also python:MODULE:CALLABLE, compiledmodel:DIR "
     "(default: %(default)s)",
     {"default": "opencl", "metavar": "opencl|xnnpack|PATH.so"}),
    ("delegate_options", "options for the delegate",
     {"type": _options, "default": {}, "metavar": "K:V;K:V"}),
    ("device_profile", "", {}),
    ("device", "", {}),
    ("runtime", "which installed TFLite calls the delegate",
     {"type": _runtime, "metavar": "|".join(RUNTIMES)}),
    # the cases
    ("models", "", {"more": " to run, too"}),
    ("list", "", {"more": ": the cases' names"}),
    ("write_models", "write the cases' models into DIR, as their names with .tflite, and exit",
     {"type": OutputPath, "metavar": "DIR"}),
    ("filter", "only cases whose name has a match", _REGEX),
    ("sample", "only N cases, a fair share of each op", {"type": positive, "metavar": "N"}),
    ("seed", "", {"default": 0, "more": "; here: the sample"}),
    ("quick", "a small sample and the behaviour cases", _SWITCH),
    ("shard", "", {"more": ", by hashes of names: a new case moves no other one"}),
    ("heavy", "also cases that take the reference kernels long", _SWITCH),
    # the run
    ("alternatives", "run each case once for each alternative that opencl has for its nodes",
     _SWITCH),
    ("compile_only", "build the cases' kernels and run nothing: the device needs only a compiler",
     _SWITCH),
    ("tolerance", "", {"default": 0, "more": f"; teflon: {TEFLON}",
                       "convert": _tolerance, "metavar": "Q|teflon"}),
    ("minutes", "end after N minutes; first run what tells most: cases that failed --earlier, that "
     "stand for reported faults, that have most kernels", {"type": minutes, "metavar": "N"}),
    ("earlier", "with --minutes: an earlier run's --json", _FILES),
    ("jobs", "worker processes at a time", {"type": positive, "default": 1, "metavar": "N"}),
    ("scheduler", "", {"more": ": all cases on each board, and the boards are compared; a board "
                       "is the workers of a name"}),
    ("timeout", "", {"default": 60.0, "more": ": a case, or each of its alternatives"}),
    ("output", "", {"default": "delegate-test-results", "more": ": results.csv and the rest"}),
    ("resume", "", {"more": ", by what is in --output"}),
    # expectations
    ("baseline", "known failures, lines NAME,Fail", _FILE),
    ("update_baseline", "write what failed into --baseline", _SWITCH),
    ("skips", "cases not to run, a regular expression a line", _FILES),
    ("flakes", "cases that fail at times, a regular expression a line", _FILES),
    ("expect_device", "run nothing unless the device's name has a match", _REGEX),
    ("allow_not_delegated", "a case of which the delegate takes nothing is not unexpected",
     _SWITCH),
    # output files
    ("junit", "write JUnit's XML; - is stdout", _OUTPUT),
    ("ktap", "write the kernel's TAP; - is stdout", _OUTPUT),
    ("kernelci", "write the results for KernelCI's database (KCIDB 5.3); - is stdout", _OUTPUT),
    ("kernelci_build", "the kernel's build there, with --kernelci",
     {"type": _build, "metavar": "ORIGIN:ID"}),
    ("json", "", {}),
    ("html", "", {"more": "; it has a matrix of ops and types"}),
    ("lava", "write LAVA's signals (default: stdout)", _ON_STDOUT),
    ("coverage", "write the table op x type in Markdown, or renew a page that marks its place "
     "(default: stdout)", _ON_STDOUT),
    ("corpus", "print a page of reported faults and what these runs' --json say of them, and exit; "
     "--html writes it as HTML", {"nargs": "*", "metavar": "RUN.json"}),
    ("reduce", "shrink a failing case to the smallest model and input that still fail",
     {"metavar": "NAME|MODEL.tflite"}),
)  # fmt: skip


# Per-board files, which are in the board's folder.
_OF_ONE = (
    "junit",
    "ktap",
    "html",
    "lava",
    "coverage",
    "reduce",
    "update_baseline",
    "expect_device",
    "minutes",
    "kernelci",
)


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the flags' values; --help ends the process as argparse does.

    Raises: UsageError: an unknown flag, or a missing or invalid value.
    """
    given = parser().parse(arguments)
    if given.update_baseline and not given.baseline:
        raise UsageError("--update_baseline needs --baseline FILE")
    if given.device_profile:
        if given.delegate != "opencl":
            raise UsageError("--device_profile is for --delegate opencl")
        profile = given.device_profile
        path = str(Path(profile).resolve()) if profile.endswith(".toml") else profile
        given.delegate_options = {**given.delegate_options, "device_profile": path}
    if given.alternatives and not re.match("opencl$|python:", given.delegate):
        raise UsageError("--alternatives is for --delegate opencl: others do not tell theirs")
    if given.compile_only and (given.delegate != "opencl" or given.device_profile or given.reduce):
        raise UsageError("--compile_only is for --delegate opencl, a real device and no --reduce")
    given.device = device_asked(given.device)
    if given.scheduler and (alone := [name for name in _OF_ONE if getattr(given, name)]):
        raise UsageError(f"--{alone[0]} is of one board, and --scheduler is given")
    if (given.kernelci is None) != (given.kernelci_build is None):
        raise UsageError("--kernelci FILE and --kernelci_build ORIGIN:ID need each other")
    if given.earlier and given.minutes is None:
        raise UsageError("--earlier is for --minutes")
    if given.quick and given.sample is not None:
        raise UsageError("--quick and --sample exclude each other")
    return given


def parser() -> Parser:
    """Return a new parser of all flags."""
    made = Parser(
        prog="tflite-delegate-test",
        description="Run a conformance suite on a TFLite delegate, beside the reference kernels.",
        notes=codes_text(*(code for code in EXIT_CODES if code not in (NO_DEVICE, LOST))),
        examples=EXAMPLES,
        allow_abbrev=False,
    )
    for name, text, settings in _FLAGS:
        if text:
            made.add_argument(f"--{name}", help=text, **settings)
        else:
            add_flag(made, name, **settings)
    return made
