# SPDX-License-Identifier: Apache-2.0
"""The table of flags shared by commands: each has the same type and meaning everywhere.

Also environment variables: those that every command sets, and the one that selects a device.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from delegate import Options
from delegate.inspect import PRECISIONS, Graph, usable_processors
from tflite_opencl.cli.flag_values import (
    MOST_PICTURES,
    at_most,
    delegate_options,
    duration,
    height_width,
    integer,
    named_file,
    names,
    not_negative,
    one_of,
    output_folder,
    output_path,
    path,
    placement,
    positive,
    precision_of,
    shard,
    threads,
    truth,
)
from tflite_opencl.cli.messages import known_ops
from tflite_opencl.cli.scheduler import scheduler
from tflite_opencl.console.errors import CommandError
from tflite_opencl.console.exit_codes import USAGE

PLACED_THREADS = 4  # as many as label_image gives the CPU by default
STDOUT = "; - is stdout, which then holds nothing else"


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag's type and help text; `detail` is shown in the help only."""

    help: str
    convert: Callable[[str], Any] | None = path  # None: a switch without a value
    metavar: str = "FILE"
    short: str = ""
    detail: str = ""

    def add_to(self, parser: argparse._ActionsContainer, name: str, **changes: Any) -> None:
        """Add it to a parser under its short and its long name."""
        words = [f"-{self.short}"] * bool(self.short) + [f"--{name}"]
        takes = {"type": self.convert, "metavar": self.metavar}
        settings = takes if self.convert else {"action": "store_true"}
        parser.add_argument(*words, **{"help": self.help, **settings, **changes})


# The shared help texts; each command may append to them, and has its own defaults.
SHARED = {
    "tflite_model": Flag("a .tflite file", short="m"),
    "signature": Flag("which of the file's signatures runs (default: the first)", str, "NAME"),
    "input": Flag("an input's values, by its name or its number (0 is the first)", named_file,
                  "NAME=FILE"),
    "image": Flag("a picture: BMP, or whatever Pillow reads", short="i"),
    "input_size": Flag("the picture's height and width, if the model leaves them open",
                       height_width, "HxW"),
    "labels": Flag("one label a line", short="l"),
    "count": Flag("how many", positive, "N", "c"),
    "warmup_runs": Flag("runs before the timed ones", not_negative, "N", "w"),
    "threads": Flag("CPU threads", threads, "N", "t"),
    "num_threads": Flag("CPU threads", threads, "N"),
    "device": Flag("the OpenCL device: its index, or words of its platform's or its own name",
                   str, "DEVICE"),
    "device_profile": Flag("keep another device's limits", str, "NAME|FILE.toml",
                           detail=": what would not run there does not run here"),
    "precision": Flag("how OpenCL computes floats", one_of(*PRECISIONS), "fp32|fp16|ieee",
                      detail=": fp16 is faster on many GPUs, and gives other results of models "
                      "that are not quantised; ieee gives the same bits on every device"),
    "allow_fp16": Flag("the same as --precision fp16", truth, "0|1", "f"),
    "exclude_ops": Flag("leave these ops to the CPU", names, "OP,OP"),
    "placement": Flag("where nodes run that OpenCL supports", placement,
                      "device|fastest|offload:FACTOR",
                      detail=": device, fastest (partitions are timed on the CPU, too), offload "
                      "(to the CPU only if OpenCL takes FACTOR, 2, times as long)"),
    "isolate": Flag("run OpenCL in a child process", truth, "BOOL",
                    detail="; a driver that ends or holds it costs a run"),
    "device_timeout": Flag("seconds that a run may take on OpenCL", duration, "SECONDS"),
    "plan": Flag("run by a plan of `tflite-opencl plan`, and measure nothing"),
    "tune": Flag("measure which kernels are fastest, and keep that",
                 one_of("off", "quick", "full"), "off|quick|full",
                 detail=": off, quick (a few seconds in the first start), full (to the end, with "
                 "more runs and more ways to launch)"),
    "external_delegate_path": Flag("a delegate library (libteflon.so, libvx_delegate.so)", str),
    "external_delegate_options": Flag('its options: "k1:v1;k2:v2"', delegate_options, "OPTIONS"),
    "tolerance": Flag("quanta that an integer may be off", not_negative, "Q"),
    "timeout": Flag("the longest that one thing may take, in seconds", duration, "SECONDS"),
    "json": Flag(f"write all that is known as JSON{STDOUT}", output_path),
    "csv": Flag("write a table as CSV", output_path, detail=STDOUT),
    "html": Flag("write a page of HTML", output_path, detail=STDOUT),
    "markdown": Flag("write a table in Markdown", output_path, detail=STDOUT),
    "fault": Flag("write each wrong kernel as a C program", output_folder, "DIR"),
    "against": Flag("show what changed since this file was kept"),
    "models": Flag("a folder of .tflite files", metavar="DIR"),
    "batch": Flag("several pictures, N at once where OpenCL runs the whole model",
                  at_most(MOST_PICTURES, positive), "N"),
    "output": Flag("where what is made is written", output_path, "PATH"),
    "list": Flag("show what there is to choose from, and exit", None),
    "scheduler": Flag("spread the work over workers of a Dask scheduler, or N of this machine's "
                      "own", scheduler, "tcp://HOST:PORT|local:N"),
    "expect": Flag("count what is right",
                   detail=": top-1 and top-5 by a CSV file with the columns file and index"),
    "shard": Flag("only the Ith of N parts", shard, "I/N"),
    "resume": Flag("go on with a run that was ended", None),
    "seed": Flag("what is drawn: the same one draws the same again", integer, "S"),
    "compare": Flag("run on the CPU, too", truth, "BOOL"),
    "quiet": Flag("show no progress and no INFO lines", None,
                  detail="; results, warnings and errors stay"),
    "version": Flag("show the versions of this, TFLite and the OpenCL drivers and exit",
                    None),
}  # fmt: skip


def add_flag(
    parser: argparse._ActionsContainer,
    name: str,
    default: Any = None,
    more: str = "",
    convert: Callable[[str], Any] | None = None,
    **changes: Any,
) -> None:
    """Add a flag of the table; `more`: text to append, `convert`: the command's own converter."""
    flag = SHARED[name]
    text = f"{default:g}" if isinstance(default, (int, float)) else default
    shown = f" (default: {text})" if isinstance(text, str) else ""
    if flag.convert is not None:
        changes = {"type": convert or flag.convert, "default": default, **changes}
    flag.add_to(parser, name, help=f"{flag.help}{more}{flag.detail}{shown}", **changes)


def add_flags(parser: argparse._ActionsContainer, *names: str, **defaults: Any) -> None:
    """Add flags as in the table, and others with these defaults."""
    for name in names:
        add_flag(parser, name)
    for name, default in defaults.items():
        add_flag(parser, name, default)


def add_models(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add the models: arguments, or -m; `models_of` returns both."""
    text = f"{SHARED['tflite_model'].help}{more}"
    parser.add_argument("model", nargs="*", metavar="MODEL", help=text)
    add_flag(parser, "tflite_model", [], ", as MODEL", nargs="+", action="extend")


def models_of(options: argparse.Namespace) -> list[str]:
    """Return the given models, at least one. Raises: CommandError: there is none."""
    if models := [*options.model, *options.tflite_model]:
        return models
    raise CommandError("no model is named: MODEL, or -m FILE", USAGE)


def model_of(options: argparse.Namespace) -> str:
    """Return the one given model. Raises: CommandError: there is none, or several."""
    model, *others = models_of(options)
    if others:
        raise CommandError(f"one model at a time: {model} and {others[0]} are named", USAGE)
    return model


def add_device_arguments(
    parser: argparse.ArgumentParser, tune: str = "quick", may_leave: bool = True
) -> None:
    """Add the flags that select a device; `tune`: the default of --tune.

    `may_leave`: the command runs nodes in TFLite's interpreter, so they may be left to the CPU.
    """
    add_flags(parser, "device", "device_profile", "plan", exclude_ops=(), tune=tune)
    if may_leave:
        add_flag(parser, "placement", "device")
    add_flags(parser, precision=PRECISIONS[0], allow_fp16=False)


def options_of(given: argparse.Namespace, graphs: Iterable[Graph], profiling: bool) -> Options:
    """Return the delegate's options; `profiling`: launches are not merged.

    Raises: UsageError: --exclude_ops names an op that neither TFLite nor a graph has, or flags name
        two precisions.
    """
    where = getattr(given, "placement", "device")
    return Options(
        device=device_asked(given.device),
        exclude_ops=known_ops(given.exclude_ops, graphs),
        device_profile=given.device_profile,
        tune=given.tune,
        precision=precision_of(given.precision, given.allow_fp16, where),
        profiling=profiling,
        alternative=getattr(given, "alternative", None),
        plan=getattr(given, "plan", None),
        placement=where,
    )


def prepare_environment() -> None:
    """Set variables that drivers read when loaded, unless the user has set them.

    This makes the measurements of all commands comparable.
    """
    # PoCL pins its threads to cores only if the variable is set before it is loaded.
    os.environ.setdefault("POCL_AFFINITY", "1")
    # NOTE: Oclgrind 21.10 does not know llvm.fshl, which optimised code contains.
    os.environ.setdefault("OCLGRIND_BUILD_OPTIONS", "-cl-opt-disable")
    # In a container they would start a thread for each core, whatever its share of them is.
    if (count := usable_processors()) < len(os.sched_getaffinity(0)):
        for name in ("POCL_MAX_PTHREAD_COUNT", "POCL_CPU_MAX_CU_COUNT", "LP_NUM_THREADS"):
            os.environ.setdefault(name, str(count))


def device_asked(flag: str | None) -> str | None:
    """Return the device of --device or TFLITE_OPENCL_DEVICE; None: the first that works."""
    return flag or os.environ.get("TFLITE_OPENCL_DEVICE") or None
