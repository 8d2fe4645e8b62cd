# SPDX-License-Identifier: Apache-2.0
"""Command-line parsing: every flag of TFLite's label_image, and this project's.

flag_table.py declares the flags; argparse converts and documents them. Opens no file or device.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from label_image.flag_table import ALL, TFLITE, TOOL
from label_image.settings import Settings
from tflite_opencl.cli.command_line import HelpFormatter, examples_text
from tflite_opencl.cli.flag_values import COMPARE_MODES, TRUTH, compare_mode, truth
from tflite_opencl.cli.messages import did_you_mean
from tflite_opencl.console.errors import UsageError
from tflite_opencl.console.exit_codes import EXIT_CODES, NOTHING_RUN, codes_text

EXAMPLES = (
    ("label_image --use_gpu -m model.tflite -l labels.txt -i picture.jpg", "one picture"),
    ("label_image --list_devices", "the OpenCL devices, for --device"),
    ("label_image --use_gpu --device pocl -c 50 -i picture.jpg", "50 timed runs on a device"),
    ("label_image --use_gpu -i picture.jpg --report report.html", "a page for a bug report"),
    ("label_image --use_gpu --batch 8 -i folder", "each picture of a folder, eight at once"),
)
# Flags that mean true without a value, by converter: the values that they accept.
_WITHOUT_VALUE: dict[Any, set[str]] = {
    truth: {*TRUTH}, compare_mode: {*TRUTH, *COMPARE_MODES},
}  # fmt: skip
_BY_SHORT = {row.short: name for name, row in ALL.items() if row.short}


def parse(arguments: Sequence[str]) -> Settings:
    """Return the settings that the arguments specify.

    Raises: UsageError: an unknown flag, or a missing or invalid value.
    """
    words, models, pictures = _normalise(arguments)
    given = vars(parser().parse_args(words))
    asked = [word.partition("=")[0].removeprefix("--") for word in words]
    models = [given["tflite_model"]] * ("tflite_model" in asked) + models
    if len(models) > 1:
        raise UsageError(f"one model at a time: {models[0]} and {models[1]} are named")
    given["tflite_model"] = models[0] if models else None
    if pictures and "image" in asked:
        pictures.insert(0, given["image"])
    elif len(pictures) == 1:  # equivalent to --image
        asked.append("image")
        given["image"] = pictures.pop()
    settings = Settings(
        **given, pictures=tuple(pictures), asked=tuple(asked), command=tuple(arguments)
    )
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    """Raise UsageError for conflicting flags and missing prerequisites."""
    if settings.resume and settings.json_lines in (None, "-"):
        raise UsageError("--resume needs --json_lines FILE, which the run before has written")
    if settings.video:
        _check_video(settings, settings.video)
    if settings.watch and (settings.is_image_asked or settings.video or settings.batch):
        raise UsageError("--watch excludes pictures, --video and --batch")
    if settings.scheduler and settings.is_endless:
        raise UsageError("--scheduler is for pictures that are there: not for --video and --watch")
    if settings.quiet and settings.verbose:
        raise UsageError("--quiet and --verbose exclude each other")
    for name, row in ALL.items():
        if row.is_for_one and getattr(settings, name) != row.default and settings.is_for_several:
            raise UsageError(f"--{name} is for one picture, and this command line is for several")
    if settings.plan and (settings.batch or 1) > 1:
        raise UsageError("--plan has the plan of one picture at a time: not with --batch")
    if settings.isolate is False and settings.device_timeout:
        raise UsageError("--device_timeout ends a child process: not with --isolate=false")
    if settings.isolates and settings.profiles:
        raise UsageError(f"--{settings.profiles[0]} is of runs in this process: not of those in a "
                         "child, which --isolate and --device_timeout ask for")  # fmt: skip


def _check_video(settings: Settings, video: str) -> None:
    """Raise UsageError for a flag that applies to pictures only."""
    if settings.is_image_asked:
        raise UsageError("--video and pictures exclude each other")
    of_pictures = {
        "expect": settings.expect, "shard": settings.shard, "resume": settings.resume,
    }  # fmt: skip
    for name, value in of_pictures.items():
        if value:
            raise UsageError(f"--{name} is for pictures, and --video is given")
    if settings.every_frame and settings.newest_frame:
        raise UsageError("--every_frame and --newest_frame exclude each other")
    is_every = settings.every_frame or os.path.isfile(video)
    if settings.batch and (settings.newest_frame or not is_every):
        raise UsageError("--batch with --video needs --every_frame: else each frame is the newest")


def usage(has_all: bool = False) -> str:
    """Return the help text; `has_all`: of every flag, including those without effect."""
    return parser(has_all).format_help()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "))


def parser(has_all: bool = True) -> argparse.ArgumentParser:
    """Return a new parser of all flags, without the picture arguments.

    `has_all`: its help lists all flags, not only the common ones.
    """
    codes = codes_text(*(code for code in EXIT_CODES if code != NOTHING_RUN))
    made = _Parser(
        prog="label_image",
        usage="label_image [flags] [model.tflite] [pictures]   (--name value, -x value)",
        description="Classify a picture with a .tflite model; with --use_gpu through OpenCL. "
        "Of several pictures (as further arguments, of a folder, with --batch) each gets a row on "
        "stdout: the file and its best result, or as many as --num_results says.",
        epilog=f"{codes}\n\n{examples_text(EXAMPLES)}",
        add_help=False,
        allow_abbrev=False,
        formatter_class=lambda prog: HelpFormatter(prog, max_help_position=32, width=80),
    )
    tflite = made.add_argument_group("TFLite's flags")
    own = made.add_argument_group("Our own flags")
    no_effect = made.add_argument_group("TFLite's flags that are accepted and do nothing here")
    for name, row in ALL.items():
        group = no_effect if row.no_effect else tflite if name in TFLITE else own
        changes = {"action": "append"} if row.is_repeatable else {}
        text = row.text(has_detail=True) if has_all or row.is_common else argparse.SUPPRESS
        row.add_to(group, name, default=row.default, help=text, **changes)
    return made


def _normalise(arguments: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the flags as `--whole_name=value` words, the models and the pictures."""
    words: list[str] = []
    models: list[str] = []
    pictures: list[str] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word == "--":  # the rest are pictures, even if they start with a dash
            pictures += waiting
            break
        if word and not word.startswith("-"):
            (models if word.lower().endswith(".tflite") else pictures).append(word)
            continue
        name, value = _split(word)
        convert = ALL[name].convert
        if convert is None:
            if value is not None:
                raise UsageError(f"--{name} takes no value")
            words.append(f"--{name}")
            continue
        if value is None and convert in _WITHOUT_VALUE:
            # `--use_gpu picture.bmp` must not consume the picture.
            values = _WITHOUT_VALUE[convert]
            following = waiting[0] if waiting else ""
            value = "true"
            if following.lower() in values:
                value = waiting.pop(0)
            elif following.isalpha() and not os.path.exists(following):
                known = ", ".join(sorted(values))
                raise UsageError(
                    f"{word} {following}: neither one of {known} nor a picture that is there"
                )
        elif value is None:
            if not waiting:
                raise UsageError(f"{word} needs a value")
            value = waiting.pop(0)
        words.append(f"--{name}={value}")
    return words, models, pictures


def _split(word: str) -> tuple[str, str | None]:
    """Return the flag's full name and its value."""
    if word.startswith("--") and len(word) > 2:
        name, equals, value = word[2:].partition("=")
        return _resolve(name.replace("-", "_")), value if equals else None
    if word.startswith("-") and len(word) > 1:
        if word[1] not in _BY_SHORT:
            raise UsageError(f"unknown option {word[:2]}")
        return _BY_SHORT[word[1]], word[2:] or None
    if word == "-":
        raise UsageError("'-' is a picture on stdin, and only --image takes it")
    raise UsageError(f"unexpected argument '{word}'")


def _resolve(name: str) -> str:
    if name in ALL:
        return name
    # Only label_image's own names have prefixes, so that our flags never make one ambiguous.
    matches = [each for each in TOOL if each.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UsageError(f"--{name} is ambiguous: {', '.join(f'--{each}' for each in matches)}")
    meant = did_you_mean(f"--{name}", (f"--{each}" for each in ALL))
    raise UsageError(f"unknown option --{name}{meant}")
