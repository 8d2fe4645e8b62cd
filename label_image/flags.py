# SPDX-License-Identifier: Apache-2.0
"""The command line: every flag of TFLite's label_image, and our own.

One table says what exists; argparse converts and explains it. No file or device is opened here.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

DEFAULT_MODEL = "./mobilenet_quant_v1_224.tflite"  # label_image's own defaults
DEFAULT_LABELS = "./labels.txt"
DEFAULT_IMAGE = "./grace_hopper.bmp"

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


class UsageError(Exception):
    """The command line is wrong; the text is one line that says what.

    Attributes:
        show_usage: label_image answers this mistake with its whole usage text.
    """

    def __init__(self, text: str, show_usage: bool = False) -> None:
        super().__init__(text)
        self.show_usage = show_usage


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line asks for."""

    tflite_model: str | None  # None: label_image's default file, or the embedded model
    labels: str | None  # None: the default file, or the embedded model's labels
    image: str
    pictures: tuple[str, ...]  # files and folders to classify one after the other; () = `image`
    batch: int | None  # pictures at once; None: not asked for
    is_image_asked: bool  # --image was given
    inputs: tuple[tuple[str, str], ...]  # an input's name or number, and the .npy file for it
    input_mean: float  # for float inputs, and int16 ones
    input_std: float
    count: int  # timed runs
    warmup_runs: int  # runs before them
    threads: int | None  # None: TFLite's own choice
    num_results: int
    num_results_of_several: int  # a picture, where there are several
    profiling: bool
    max_profiling_buffer_entries: int
    verbose: bool
    use_gpu: bool
    announce_xnnpack: bool  # XNNPACK was asked for by name
    external_delegate_path: str
    external_delegate_options: dict[str, str]
    min_nodes_per_partition: int
    max_delegated_partitions: int
    device: str | None
    device_profile: str | None  # another device's limits: a name or a .toml file
    list_devices: bool
    compare: bool
    exclude_ops: tuple[str, ...]
    tune: str  # "off", "quick" or "full"
    cpu_kernels: str  # "auto", "builtin" or "reference"
    device_timeout: float  # seconds; 0: no child process
    json: str | None  # a path, or "-" for stdout
    output_dir: str | None  # a folder
    fetch: str | None
    help: bool
    version: bool
    warnings: tuple[str, ...] = field(default=())  # what was accepted and does nothing


def parse(arguments: Sequence[str]) -> Settings:
    """Return the settings the arguments ask for.

    Raises:
        UsageError: an unknown flag, a missing or a wrong value.
    """
    parser = _parser()
    words, pictures = _normalise(arguments)
    given = vars(parser.parse_args(words))
    asked = {word.partition("=")[0] for word in words}
    if pictures and "--image" in asked:
        pictures.insert(0, given["image"])
    given["pictures"] = tuple(pictures)
    given["is_image_asked"] = "--image" in asked or bool(pictures)
    given["inputs"] = tuple(given["input"])
    given["num_results_of_several"] = given["num_results"] if "--num_results" in asked else 1
    # As in label_image, XNNPACK asked for by -x takes -t; else --num_threads is its number.
    if given["num_threads"] != -1 and not given["xnnpack_delegate"]:
        given["threads"] = given["num_threads"]
    given["threads"] = None if given["threads"] == -1 else given["threads"]
    given["announce_xnnpack"] = given["xnnpack_delegate"] or given["use_xnnpack"]
    given["warnings"] = tuple(_warnings(given))
    return Settings(**{entry.name: given[entry.name] for entry in fields(Settings)})


def usage() -> str:
    """Return the whole help text."""
    return _parser().format_help()


def _warnings(given: dict[str, Any]) -> list[str]:
    lines = [
        f"--{flag.name} does nothing: {flag.not_done}"
        for flag in _FLAGS
        if flag.not_done and given[flag.name] != flag.default
    ]
    if given["gpu_backend"] == "gl":
        lines.append("--gpu_backend=gl does nothing: there is no OpenGL here, OpenCL is used")
    if given["external_delegate_path"]:
        if given["use_gpu"]:
            lines.append("--use_gpu does nothing: the external delegate is used instead")
    elif given["external_delegate_options"]:
        lines.append("--external_delegate_options does nothing without --external_delegate_path")
    if not given["use_gpu"] or given["external_delegate_path"]:
        lines += [
            f"--{name} does nothing without --use_gpu"
            for name in ("device", "device_profile", "exclude_ops", "device_timeout")
            if given[name]
        ]
    if given["announce_xnnpack"] and given["cpu_kernels"] != "auto":
        lines.append(f"--cpu_kernels={given['cpu_kernels']} turns XNNPACK off")
        given["announce_xnnpack"] = False
    return lines


def _truth(text: str) -> bool:
    try:
        return _TRUTH[text.lower()]
    except KeyError:
        raise argparse.ArgumentTypeError(f"'{text}' is not true, false, 1 or 0") from None


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number") from None


def _positive(text: str) -> int:
    if (number := _integer(text)) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return number


def _not_negative(text: str) -> int:
    if (number := _integer(text)) < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is less than 0")
    return number


def _thread_count(text: str) -> int:
    if (number := _integer(text)) != -1 and number < 1:
        raise argparse.ArgumentTypeError(
            f"'{text}' is neither a positive number nor -1 (TFLite's own choice)"
        )
    return number


def _real(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number")
    return number


def _divisor(text: str) -> float:
    if (number := _real(text)) == 0:
        raise argparse.ArgumentTypeError("pixels cannot be divided by 0")
    return number


def _seconds(text: str) -> float:
    if (number := _real(text)) < 0:
        raise argparse.ArgumentTypeError(f"'{text}' is less than 0 seconds")
    return number


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _backend(text: str) -> str:
    if text not in ("", "cl", "gl"):
        raise argparse.ArgumentTypeError(f"'{text}' is neither cl nor gl")
    return text


def _tune(text: str) -> str:
    if text not in ("off", "quick", "full"):
        raise argparse.ArgumentTypeError(f"'{text}' is not off, quick or full")
    return text


def _cpu_kernels(text: str) -> str:
    if text not in ("auto", "builtin", "reference"):
        raise argparse.ArgumentTypeError(f"'{text}' is not auto, builtin or reference")
    return text


def _delegate_options(text: str) -> dict[str, str]:
    options = {}
    for item in filter(None, text.split(";")):
        key, *values = item.split(":")
        if not key or len(values) != 1:
            raise argparse.ArgumentTypeError(f"'{item}' is not key:value; as in \"k1:v1;k2:v2\"")
        options[key] = values[0]
    return options


def _named_file(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    if not name or not path:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=FILE.npy")
    return name, path


def _folder(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("'' is no folder's name")
    return text


@dataclass(frozen=True, slots=True)
class _Flag:
    name: str
    help: str
    convert: Callable[[str], Any] | None  # None: a switch, which takes no value
    default: Any = None
    metavar: str = "N"
    short: str = ""
    not_done: str = ""  # why a value other than the default does nothing here
    group: str = "delegate"  # "label_image" (prefixes resolve among these), "delegate", "own"
    is_repeatable: bool = False  # every value counts, not the last


def _label_image(
    name: str,
    short: str,
    text: str,
    convert: Callable[[str], Any] | None,
    default: Any = None,
    metavar: str = "N",
    not_done: str = "",
) -> _Flag:
    return _Flag(name, text, convert, default, metavar, short, not_done, "label_image")


def _own(
    name: str,
    text: str,
    convert: Callable[[str], Any] | None,
    default: Any = None,
    metavar: str = "",
    is_repeatable: bool = False,
) -> _Flag:
    return _Flag(name, text, convert, default, metavar, group="own", is_repeatable=is_repeatable)


_NO_NNAPI = "there is no NNAPI here (Android has it)"
_NO_HEXAGON = "there is no Hexagon DSP here (Android has it)"
_NO_COREML = "there is no Core ML here (Apple has it)"
_NO_GL = "there is no OpenGL here; --use_gpu runs the model on OpenCL"
_NO_FLOAT = "what runs on OpenCL is integer arithmetic, at full precision"
_CACHE = "built kernels are always cached, in the user's cache folder"
_XNNPACK_DEFAULTS = "XNNPACK runs with TFLite's defaults"

_FLAGS = (
    _label_image("tflite_model", "m", f"the model (default: {DEFAULT_MODEL}, or the embedded one)",
                 str, None, metavar="FILE"),
    _label_image("labels", "l", f"one label a line (default: {DEFAULT_LABELS}, or the embedded "
                 "model's own)", str, None, metavar="FILE"),
    _label_image("image", "i", "the picture: BMP, or whatever Pillow reads; or a folder of them",
                 str, DEFAULT_IMAGE, metavar="FILE"),
    _label_image("count", "c", "timed runs", _positive, 1),
    _label_image("warmup_runs", "w", "runs before the timed ones", _not_negative, 2),
    _label_image("threads", "t", "CPU threads; -1: TFLite's own choice", _thread_count, 4),
    _label_image("num_results", "r", "results to show", _positive, 5),
    _label_image("input_mean", "b", "subtracted from pixels, for float inputs", _real, 127.5,
                 metavar="X"),
    _label_image("input_std", "s", "then divided by this, for float inputs", _divisor, 127.5,
                 metavar="X"),
    _label_image("verbose", "v", "say more, show tracebacks", _truth, False, metavar="0|1"),
    _label_image("profiling", "p", "times of the nodes that ran on OpenCL", _truth, False,
                 metavar="0|1"),
    _label_image("max_profiling_buffer_entries", "e", "most rows of --profiling", _positive, 1024),
    _label_image("xnnpack_delegate", "x", "XNNPACK: on by default", _truth, False, metavar="0|1"),
    _label_image("allow_fp16", "f", "floats in half precision", _truth, False, metavar="0|1",
                 not_done=_NO_FLOAT),
    _label_image("accelerated", "a", "NNAPI", _truth, False, metavar="0|1", not_done=_NO_NNAPI),
    _label_image("gl_backend", "g", "OpenGL", _truth, False, metavar="0|1", not_done=_NO_GL),
    _label_image("hexagon_delegate", "j", "Hexagon", _truth, False, metavar="0|1",
                 not_done=_NO_HEXAGON),
    _label_image("help", "h", "show this and exit", None),
    _Flag("use_gpu", "run the model through OpenCL", _truth, False, metavar="BOOL"),
    _Flag("gpu_backend", "cl is what runs here", _backend, "", metavar="cl|gl"),
    _Flag("gpu_precision_loss_allowed", "never needed: OpenCL results are exact", _truth, True,
          metavar="BOOL"),
    _Flag("gpu_experimental_enable_quant", "run quantised models", _truth, True, metavar="BOOL",
          not_done="quantised models are what runs on OpenCL"),
    _Flag("gpu_inference_for_sustained_speed", "a hint, always followed", _truth, False,
          metavar="BOOL"),
    _Flag("gpu_invoke_loop_times", "invoke several times", _integer, -1,
          not_done="use --count"),
    _Flag("gpu_wait_type", "how to wait for the GPU", str, "", metavar="WORD",
          not_done="the OpenCL driver decides how to wait"),
    _Flag("max_delegated_partitions", "most partitions on OpenCL; 0: no limit", _not_negative, 0),
    _Flag("min_nodes_per_partition", "smallest partition on OpenCL; 0: any that saves time",
          _not_negative, 0),
    _Flag("num_threads", "as --threads", _thread_count, -1),
    _Flag("external_delegate_path", "a delegate library (libteflon.so, libvx_delegate.so)", str,
          "", metavar="FILE"),
    _Flag("external_delegate_options", 'its options: "k1:v1;k2:v2"', _delegate_options, {},
          metavar="OPTIONS"),
    _Flag("use_xnnpack", "XNNPACK: on by default", _truth, False, metavar="BOOL"),
    _Flag("xnnpack_force_fp16", "floats in half precision", _truth, False, metavar="BOOL",
          not_done=_XNNPACK_DEFAULTS),
    _Flag("xnnpack_weight_cache_file_path", "XNNPACK's weight cache", str, "", metavar="FILE",
          not_done=_XNNPACK_DEFAULTS),
    _Flag("xnnpack_runtime_flags", "XNNPACK's flags", _integer, 0, not_done=_XNNPACK_DEFAULTS),
    _Flag("delegate_serialize_dir", "where kernels are cached", str, "", metavar="DIR",
          not_done=_CACHE),
    _Flag("delegate_serialize_token", "name of the cached kernels", str, "", metavar="WORD",
          not_done=_CACHE),
    _Flag("first_delegate_node_index", "first node to delegate", _integer, 0,
          not_done="use --exclude_ops"),
    _Flag("last_delegate_node_index", "last node to delegate", _integer, 2147483647,
          not_done="use --exclude_ops"),
    _Flag("stable_delegate_settings_file", "settings of a stable delegate", str, "",
          metavar="FILE", not_done="use --external_delegate_path"),
    _Flag("use_nnapi", "NNAPI", _truth, False, metavar="BOOL", not_done=_NO_NNAPI),
    _Flag("nnapi_execution_preference", "NNAPI", str, "", metavar="WORD", not_done=_NO_NNAPI),
    _Flag("nnapi_execution_priority", "NNAPI", str, "", metavar="WORD", not_done=_NO_NNAPI),
    _Flag("nnapi_accelerator_name", "NNAPI", str, "", metavar="WORD", not_done=_NO_NNAPI),
    _Flag("nnapi_support_library_path", "NNAPI", str, "", metavar="FILE", not_done=_NO_NNAPI),
    _Flag("disable_nnapi_cpu", "NNAPI", _truth, True, metavar="BOOL", not_done=_NO_NNAPI),
    _Flag("nnapi_allow_fp16", "NNAPI", _truth, False, metavar="BOOL", not_done=_NO_NNAPI),
    _Flag("nnapi_allow_dynamic_dimensions", "NNAPI", _truth, False, metavar="BOOL",
          not_done=_NO_NNAPI),
    _Flag("nnapi_use_burst_mode", "NNAPI", _truth, False, metavar="BOOL", not_done=_NO_NNAPI),
    _Flag("use_hexagon", "Hexagon", _truth, False, metavar="BOOL", not_done=_NO_HEXAGON),
    _Flag("hexagon_lib_path", "Hexagon", str, "/data/local/tmp", metavar="DIR",
          not_done=_NO_HEXAGON),
    _Flag("hexagon_profiling", "Hexagon", _truth, False, metavar="BOOL", not_done=_NO_HEXAGON),
    _Flag("use_coreml", "Core ML", _truth, False, metavar="BOOL", not_done=_NO_COREML),
    _Flag("coreml_version", "Core ML", _integer, 0, not_done=_NO_COREML),
    _own("device", "run on this device: its index in --list_devices, or words of its platform's "
         "or its own name (or set TFLITE_OPENCL_DEVICE)", str, None, metavar="DEVICE"),
    _own("device_profile", "keep another device's limits: what would not run there does not run "
         "here: etnaviv-gc7000, panfrost-g52, v3d, ..., or a file", str, None,
         metavar="NAME|FILE.toml"),
    _own("list_devices", "show the OpenCL devices and exit", None),
    _own("batch", "several pictures, N at once where OpenCL runs the whole model", _positive,
         None, metavar="N"),
    _own("compare", "with --use_gpu: run the CPU and the reference kernels too (default: true)",
         _truth, True, metavar="BOOL"),
    _own("exclude_ops", "leave these ops to the CPU", _names, (), metavar="A,B"),
    _own("tune", "measure which kernels are fastest on this device: off, quick (2 seconds a start, "
         "until all is known) or full; what was found is kept", _tune, "quick", metavar="MODE"),
    _own("cpu_kernels", "what runs the CPU's part: auto (TFLite's default, XNNPACK), builtin (no "
         "XNNPACK) or reference", _cpu_kernels, "auto", metavar="KERNELS"),
    _own("device_timeout", "run OpenCL in a child process and end it after so many seconds; "
         "0: no child", _seconds, 0.0, metavar="SECONDS"),
    _own("json", "write times, results and verdicts to this file; - is stdout, which then holds "
         "nothing else", str, None, metavar="FILE"),
    _own("input", "an input's values, and of which input: its name or its number (0 is the first); "
         "may be repeated; inputs without a file or a picture get zeros", _named_file, [],
         metavar="NAME=FILE.npy", is_repeatable=True),
    _own("output_dir", "write every output as .npy into this folder; of several pictures each gets "
         "a folder inside", _folder, None, metavar="DIR"),
    _own("fetch", "download an official model and its labels into the cache and exit; "
         "--tflite_model NAME then means it", str, None, metavar="NAME"),
    _own("version", "show the versions of this, of TFLite and of the OpenCL drivers and exit",
         None),
)  # fmt: skip

_BY_NAME = {flag.name: flag for flag in _FLAGS}
_BY_SHORT = {flag.short: flag for flag in _FLAGS if flag.short}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="label_image",
        usage="label_image [flags] [pictures]      --name value, --name=value, -x value",
        description="Classify a picture with a .tflite model; with --use_gpu through OpenCL. "
        "Of several pictures (as further arguments, of a folder, with --batch) each gets a row on "
        "stdout: the file and its best result, or as many as --num_results says.",
        add_help=False,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=32, width=80),
    )
    tflite = parser.add_argument_group("TFLite's flags")
    groups = {
        "label_image": tflite,
        "delegate": tflite,
        "own": parser.add_argument_group("Our own flags"),
    }
    no_effect = parser.add_argument_group("TFLite's flags that are accepted and do nothing here")
    for flag in _FLAGS:
        names = [f"-{flag.short}"] * bool(flag.short) + [f"--{flag.name}"]
        add = (no_effect if flag.not_done else groups[flag.group]).add_argument
        if flag.convert is None:
            add(*names, action="store_true", help=flag.help)
            continue
        show_default = type(flag.default) in (int, float) and not flag.not_done
        help_text = f"{flag.help} (default: {flag.default:g})" if show_default else flag.help
        add(
            *names, type=flag.convert, default=flag.default, metavar=flag.metavar, help=help_text,
            action="append" if flag.is_repeatable else "store",
        )  # fmt: skip
    return parser


def _normalise(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the flags as `--whole_name=value` words, nothing left to guess, and the pictures."""
    words: list[str] = []
    pictures: list[str] = []
    waiting = list(arguments)
    while waiting:
        word = waiting.pop(0)
        if word == "--":  # what follows are pictures, whatever they begin with
            pictures += waiting
            break
        if word and not word.startswith("-"):
            pictures.append(word)
            continue
        flag, value = _split(word)
        if flag.convert is None:
            if value is not None:
                raise UsageError(f"--{flag.name} takes no value", show_usage=True)
            words.append(f"--{flag.name}")
            continue
        if value is None and flag.convert is _truth:
            # `--use_gpu picture.bmp` must not swallow the picture.
            value = waiting.pop(0) if waiting and waiting[0].lower() in _TRUTH else "true"
        elif value is None:
            if not waiting:
                raise UsageError(f"{word} needs a value", show_usage=True)
            value = waiting.pop(0)
        words.append(f"--{flag.name}={value}")
    return words, pictures


def _split(word: str) -> tuple[_Flag, str | None]:
    if word.startswith("--") and len(word) > 2:
        name, equals, value = word[2:].partition("=")
        return _resolve(name), value if equals else None
    if word.startswith("-") and len(word) > 1:
        if word[1] not in _BY_SHORT:
            raise UsageError(f"unknown option {word[:2]}", show_usage=True)
        return _BY_SHORT[word[1]], word[2:] or None
    raise UsageError(f"unexpected argument '{word}'", show_usage=True)


def _resolve(name: str) -> _Flag:
    if name in _BY_NAME:
        return _BY_NAME[name]
    # Only label_image's own names can be shortened, so that our flags never make one ambiguous.
    matches = [
        flag for flag in _FLAGS if flag.group == "label_image" and flag.name.startswith(name)
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        choices = ", ".join(f"--{flag.name}" for flag in matches)
        raise UsageError(f"--{name} is ambiguous: {choices}", show_usage=True)
    raise UsageError(f"unknown option --{name}", show_usage=True)
