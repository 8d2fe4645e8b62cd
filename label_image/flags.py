# SPDX-License-Identifier: Apache-2.0
"""The command line: every flag of TFLite's label_image, and our own.

flag_table.py says what exists; argparse converts and explains it. No file or device is opened here.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from label_image.flag_table import COMMON, FLAGS, LABEL_IMAGE, OWN, Flag
from tflite_opencl.common.command_line import HelpFormatter, examples_text
from tflite_opencl.common.errors import UsageError
from tflite_opencl.common.exit_codes import EXIT_CODES, NOTHING_RUN, codes_text
from tflite_opencl.common.flag_values import TRUTH, compared, truth
from tflite_opencl.common.words import did_you_mean

EXAMPLES = (
    ("label_image --use_gpu -m model.tflite -l labels.txt -i picture.jpg", "one picture"),
    ("label_image --list_devices", "the OpenCL devices, for --device"),
    ("label_image --use_gpu --device pocl -c 50 -i picture.jpg", "50 timed runs on a device"),
    ("label_image --use_gpu -i picture.jpg --report report.html", "a page for a bug report"),
    ("label_image --use_gpu --batch 8 -i folder", "each picture of a folder, eight at once"),
)
_RUN_SECONDS = 60.0  # that a run may take where nobody looks


class Settings(argparse.Namespace):
    """What the command line asks for: the value of each flag of the table, and what they make.

    Attributes:
        tflite_model: None: label_image's default file, or the embedded model. threads: None:
            TFLite's own choice. pictures: files and folders to classify one after the other; () =
            `image`. is_image_asked: one was given. compares_all: of many pictures each one, not a
            sample.
        num_results_of_several: a picture, where there are several. announce_xnnpack: it was asked
            for by name. is_external_last: the external delegate chooses nodes
            after OpenCL. warnings: what was accepted and does nothing. command: the arguments, as
            they were given.
    """

    @property
    def is_for_several(self) -> bool:
        """Whether a folder is given, or what makes sense of several pictures alone."""
        asked = (
            self.pictures, self.batch, self.video, self.watch, *self.documents.values(),
            self.expect, self.shard, self.scheduler,
        )  # fmt: skip
        return any(asked) or os.path.isdir(self.image)

    @property
    def documents(self) -> dict[str, str]:
        """Give the files, or "-", of all that is written of several pictures, by their flags."""
        flags = {"json_lines": self.json_lines, "csv": self.csv, "coco": self.coco}
        return {flag: path for flag, path in flags.items() if path is not None}

    @property
    def level(self) -> int:
        """The least level of what is logged."""
        return logging.WARNING if self.quiet else logging.DEBUG if self.verbose else logging.INFO

    @property
    def is_on_stdout(self) -> bool:
        """Whether a document is stdout's only content."""
        return "-" in (self.json, self.output_video, *self.documents.values())


def parse(arguments: Sequence[str]) -> Settings:
    """Return the settings the arguments ask for.

    Raises: UsageError: an unknown flag, a missing or a wrong value.
    """
    words, models, pictures = _normalise(arguments)
    settings = parser().parse_args(words, Settings())
    given = vars(settings)
    asked = [word.partition("=")[0] for word in words]
    # As in label_image, delegates choose nodes in the order of their flags.
    order = [flag for flag in asked if flag in ("--use_gpu", "--external_delegate_path")]
    given["is_external_last"] = order[:1] == ["--use_gpu"]
    models = [given["tflite_model"]] * ("--tflite_model" in asked) + models
    if len(models) > 1:
        raise UsageError(f"one model at a time: {models[0]} and {models[1]} are named")
    given["tflite_model"] = models[0] if models else None
    if pictures and "--image" in asked:
        pictures.insert(0, given["image"])
    elif len(pictures) == 1:  # it is what --image takes
        asked.append("--image")
        given["image"] = pictures.pop()
    given["pictures"] = tuple(pictures)
    given["is_image_asked"] = "--image" in asked or bool(pictures)
    given["compares_all"], given["compare"] = given["compare"] == "all", bool(given["compare"])
    several = 5 if given["expect"] else 1
    given["num_results_of_several"] = given["num_results"] if "--num_results" in asked else several
    # As in label_image, XNNPACK asked for by -x takes -t; else --num_threads is its number.
    if given["num_threads"] != -1 and not given["xnnpack_delegate"]:
        given["threads"] = given["num_threads"]
    if given["resume"] and given["json_lines"] in (None, "-"):
        raise UsageError("--resume needs --json_lines FILE, which the run before has written")
    if given["video"]:
        _check_video(settings)
    if given["watch"] and (given["is_image_asked"] or given["video"] or given["batch"]):
        raise UsageError("--watch excludes pictures, --video and --batch")
    if given["scheduler"] and (given["video"] or given["watch"]):
        raise UsageError("--scheduler is for pictures that are there: not for --video and --watch")
    if given["quiet"] and given["verbose"]:
        raise UsageError("--quiet and --verbose exclude each other")
    given["threads"] = None if given["threads"] == -1 else given["threads"]
    given["announce_xnnpack"] = given["xnnpack_delegate"] or given["use_xnnpack"]
    given["warnings"] = tuple(_warnings(given))
    given["command"] = tuple(arguments)
    for name in ("trace", "report", "output_image", "profiling", "count"):
        if given[name] not in (None, _BY_NAME[name].default) and settings.is_for_several:
            raise UsageError(f"--{name} is for one picture, and this command line is for several")
    _decide_isolation(given)
    return settings


def _decide_isolation(given: dict[str, Any]) -> None:
    """Isolate what is to run for long, or has a limit. Raises: UsageError: that cannot be."""
    is_long = bool(given["video"] or given["watch"])
    if given["isolate"] is False and given["device_timeout"]:
        raise UsageError("--device_timeout ends a child process: not with --isolate=false")
    if given["isolate"] is None:
        given["isolate"] = is_long or bool(given["device_timeout"])
    if given["device_timeout"] is None:
        given["device_timeout"] = _RUN_SECONDS if is_long and given["isolate"] else 0.0
    for name in ("profiling", "trace"):
        if given[name] and given["isolate"]:
            raise UsageError(f"--{name} is of runs in this process: not of those in a child, which "
                             "--isolate and --device_timeout ask for")  # fmt: skip


def _check_video(settings: Settings) -> None:
    """Raise UsageError where a flag is of pictures."""
    if settings.is_image_asked:
        raise UsageError("--video and pictures exclude each other")
    for name in ("expect", "shard", "resume"):
        if getattr(settings, name):
            raise UsageError(f"--{name} is for pictures, and --video is given")
    if settings.every_frame and settings.newest_frame:
        raise UsageError("--every_frame and --newest_frame exclude each other")
    is_every = settings.every_frame or os.path.isfile(settings.video)
    if settings.batch and (settings.newest_frame or not is_every):
        raise UsageError("--batch with --video needs --every_frame: else each frame is the newest")


def usage(has_all: bool = False) -> str:
    """Return the help text; `has_all`: with every flag, those that do nothing included."""
    return parser(has_all).format_help()


def _warnings(given: dict[str, Any]) -> list[str]:
    lines = [
        f"--{flag.name} does nothing: {flag.not_done}"
        for flag in FLAGS
        if flag.not_done and given[flag.name] != flag.default
    ]
    if given["gpu_backend"] == "gl":
        lines.append("--gpu_backend=gl does nothing: there is no OpenGL here, OpenCL is used")
    if given["external_delegate_options"] and not given["external_delegate_path"]:
        lines.append("--external_delegate_options does nothing without --external_delegate_path")
    lines += [
        f"--{name} does nothing without --{other}"
        for other, names in _NEEDED
        for name in names
        if not given[other] and given[name] is not False and given[name] != _BY_NAME[name].default
    ]
    if given["announce_xnnpack"] and given["cpu_kernels"] != "auto":
        lines.append(f"--cpu_kernels={given['cpu_kernels']} turns XNNPACK off")
        given["announce_xnnpack"] = False
    return lines


# Flags that mean true where no value follows, by what converts it: the values that they take.
_WITHOUT_VALUE = {truth: {*TRUTH}, compared: {*TRUTH, "all"}}
_BY_NAME = {flag.name: flag for flag in FLAGS}
_OF_OPENCL = (
    *("allow_fp16", "device", "device_profile", "exclude_ops"),
    *("isolate", "device_timeout", "plan"),
)
# What is needed by other flags, which do nothing else.
_NEEDED = (
    ("use_gpu", _OF_OPENCL),
    ("video", ("every_frame", "newest_frame", "video_options", "output_video", "show")),
    ("scheduler", ("unordered", "chunk")),
)
_BY_SHORT = {flag.short: flag for flag in FLAGS if flag.short}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "))


def parser(has_all: bool = True) -> argparse.ArgumentParser:
    """Return a new parser of all flags; pictures are not among them.

    `has_all`: its help tells of all of them, not only of those that are mostly needed.
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
    for flag in FLAGS:
        names = [f"-{flag.short}"] * bool(flag.short) + [f"--{flag.name}"]
        group = no_effect if flag.not_done else own if flag in OWN else tflite
        is_number = type(flag.default) in (int, float) and not flag.not_done
        text = f"{flag.help} (default: {flag.default:g})" if is_number else flag.help
        text = text if has_all or flag.name in COMMON else argparse.SUPPRESS
        if flag.convert is None:
            group.add_argument(*names, action="store_true", help=text)
            continue
        group.add_argument(
            *names, type=flag.convert, default=flag.default, metavar=flag.value, help=text,
            action="append" if flag.is_repeatable else "store",
        )  # fmt: skip
    return made


def _normalise(arguments: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the flags as `--whole_name=value` words, the models and the pictures."""
    words: list[str] = []
    models: list[str] = []
    pictures: list[str] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word == "--":  # what follows are pictures, whatever they begin with
            pictures += waiting
            break
        if word and not word.startswith("-"):
            (models if word.lower().endswith(".tflite") else pictures).append(word)
            continue
        flag, value = _split(word)
        if flag.convert is None:
            if value is not None:
                raise UsageError(f"--{flag.name} takes no value")
            words.append(f"--{flag.name}")
            continue
        if value is None and flag.convert in _WITHOUT_VALUE:
            # `--use_gpu picture.bmp` must not swallow the picture.
            values = _WITHOUT_VALUE[flag.convert]
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
        words.append(f"--{flag.name}={value}")
    return words, models, pictures


def _split(word: str) -> tuple[Flag, str | None]:
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


def _resolve(name: str) -> Flag:
    if name in _BY_NAME:
        return _BY_NAME[name]
    # Only label_image's own names can be shortened, so that our flags never make one ambiguous.
    matches = [flag for flag in LABEL_IMAGE if flag.name.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        choices = ", ".join(f"--{flag.name}" for flag in matches)
        raise UsageError(f"--{name} is ambiguous: {choices}")
    meant = did_you_mean(f"--{name}", (f"--{flag.name}" for flag in FLAGS))
    raise UsageError(f"unknown option --{name}{meant}")
