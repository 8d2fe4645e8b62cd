# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl bringup`: what a new driver can do already, step by step, and what it lacks."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from delegate import DeviceInfo, Options
from delegate.guard.children.child import ask_once
from delegate.inspect import CallPlan, ProgramPlan, Reproducer, TensorSlice
from tflite_opencl.bringup.ladder import GROUP, ITEMS, KERNEL, LadderStep, ladder, padded
from tflite_opencl.cli.flag_values import output_folder
from tflite_opencl.cli.flags import add_flag, device_asked
from tflite_opencl.console import bars
from tflite_opencl.console.errors import CommandError
from tflite_opencl.console.exit_codes import NO_DEVICE, NOT_SO
from tflite_opencl.faults.layout import formatted
from tflite_opencl.faults.preprocessor import MacroExpander
from tflite_opencl.faults.program import FaultReport, write_fault
from tflite_opencl.faults.trial import (
    ERROR,
    RIGHT,
    WRONG,
    FaultCase,
    NoFault,
    Replayer,
    ReplayResult,
    sized,
)
from tflite_opencl.interpreters.interpreter import read_graph
from tflite_opencl.interpreters.runtime import runtime_if_any
from tflite_opencl.models.default_model import DefaultModelError, default_model

HELP = "bring up a new driver: 48 steps, from a buffer to a whole model, and what is lacking"
EXAMPLES = (
    (
        "tflite-opencl bringup --device rusticl -m mobilenet_v1.tflite --output bug",
        "each failing step as a C program",
    ),
)
_VERIFY = "tflite_opencl.verify.child"
_VERIFY_SECONDS = 1800.0
_FIRST = 2  # of params: the ints before it are a launch's tiles and arena


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """How a step ended."""

    number: int  # from 1
    name: str
    kind: str  # RIGHT or what is wrong
    detail: str
    folder: str  # with the C program; "": there is none
    is_avoided: bool = False  # our kernels do without what it proves

    @property
    def line(self) -> str:
        """One line for people."""
        head = f"{self.number:2d} {'ok  ' if self.kind == RIGHT else 'FAIL'} {self.name}"
        if self.kind == RIGHT:
            return head
        more = "; our kernels do without" if self.is_avoided else ""
        where = f" -> {self.folder}" if self.folder else ""
        return f"{head}: {self.kind}: {self.detail}{more}{where}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    add_flag(parser, "device", more="; the first one if not given")
    add_flag(parser, "tflite_model", None, " of the last two steps (default: the embedded one)")
    add_flag(parser, "output", None, ", a C program for each failing step", output_folder)


def run(options: argparse.Namespace) -> str:
    """Return the page.

    Raises: CommandError: the model cannot be read, or no device be opened; or a step fails, and the
        text is the page. ModelError: it is no model.
    """
    device = device_asked(options.device)
    if options.tflite_model is not None:
        read_graph(options.tflite_model)  # a model that is none is not the driver's fault
    try:
        replayer = Replayer(Options(device=device), runtime_if_any(), is_bare=True)
    except NoFault as error:
        raise CommandError(f"the device cannot be opened: {error}", NO_DEVICE) from error
    with replayer:
        outcomes = [*_climbed(replayer, options.output)]
    outcomes += _models(replayer.info, options.tflite_model, options.output, len(outcomes))
    text = _page(replayer.info, outcomes)
    if any(each.kind != RIGHT for each in outcomes):
        raise CommandError(text, NOT_SO)
    return text


def _climbed(replayer: Replayer, output: str | None) -> Iterator[StepOutcome]:
    """Yield the outcome of each step; none ends the ladder."""
    steps = ladder()
    with bars.steps("climbing", lambda: len(steps)) as step_done:
        for number, step in enumerate(steps, 1):
            fault = _case(step)
            try:
                found = replayer.outcome(fault)
            except NoFault as error:  # the device is gone
                found = ReplayResult(ERROR, str(error))
            folder = ""
            if found.kind != RIGHT and output and step.body:
                folder = str(Path(output) / f"{number:02}-{_slug(step.name)}")
                report = FaultReport(replayer.info, found, f"step {number} of bringup: {step.name}")
                write_fault(Path(folder), sized(fault, found), report)
            own = number, step.name, found.kind, found.detail, folder, step.is_avoided
            yield StepOutcome(*own)
            step_done()


def _case(step: LadderStep) -> FaultCase:
    """Return a step as a fault: its memory, its call and what is right."""
    values = [*step.inputs, step.expected]
    places, at = list[TensorSlice](), 0
    for number, each in enumerate(values):
        places.append(TensorSlice(number, each.dtype.name, each.shape, at, each.nbytes))
        at += padded(each)
    arena = np.zeros(at, np.uint8)
    for place, each in zip(places, step.inputs, strict=False):
        arena[place.offset : place.offset + each.nbytes] = each.view(np.uint8)
    tokens = MacroExpander({}).run(step.source)
    program = ProgramPlan(KERNEL, formatted(tokens), "", False)
    call = CallPlan(program, KERNEL, ITEMS, GROUP, None, _FIRST)
    given = Reproducer(
        op=step.name,
        alternative="",
        calls=(call,) if step.body else (),
        fields=((),),
        options=("-cl-std=CL1.2",),
        arena=arena,
        constants=np.zeros(64, np.uint8),
        ints=np.zeros(4, np.int32).view(np.uint8),
        inputs=tuple(places[:-1]),
        outputs=tuple(places[-1:]),
    )
    bound = step.relative * np.abs(step.expected).astype(np.float64) if step.relative else None
    return FaultCase(None, given, [step.expected], [bound], begins_right=not step.body)


def _slug(name: str) -> str:
    words = "".join(c if c.isalnum() else " " for c in name.lower()).split()
    return "-".join(words[:5])


def _models(
    info: DeviceInfo, given: str | None, output: str | None, count: int
) -> Iterator[StepOutcome]:
    """Yield the last steps: a model node by node, on fallback kernels and on the fastest."""
    model_name = Path(given).name if given else "the default model"
    names = "each node on its fallback kernel", "each node on its first kernel"
    flags: tuple[list[str], ...] = ["--alternative", "plain"], []
    with tempfile.TemporaryDirectory() as scratch:
        for number, (name, own) in enumerate(zip(names, flags, strict=True), count + 1):
            folder = str(Path(output) / f"{number:02}-model") if output else ""
            more = ["--device", str(info.index), "--tune", "off", *own]
            with bars.waiting(f"{model_name}, {name}"):
                text = _verified(given, scratch, [*more, *(["--fault", folder] if folder else [])])
            is_right = "no node is wrong" in text and "because the CPU runs them" not in text
            detail = next(filter(None, reversed(text.splitlines())), "")
            kind = RIGHT if is_right else WRONG if "the first wrong node" in text else ERROR
            is_written = bool(folder) and Path(folder).is_dir()
            folder = folder if is_written else ""
            yield StepOutcome(number, f"{model_name}, {name}", kind, detail, folder)


def _verified(given: str | None, scratch: str, flags: list[str]) -> str:
    """Return what `tflite-opencl verify` says of a model, or how its process ended."""
    model: Path | bytes
    try:
        with bars.progress("building the default model") as progress:
            model = Path(given) if given else default_model(progress)
    except DefaultModelError as error:
        return str(error)
    if isinstance(model, bytes):
        path = Path(scratch, "default.tflite")
        path.write_bytes(model)
        model = path
    arguments = ["--tflite_model", str(model), *flags]
    answers, ended = ask_once(_VERIFY, _VERIFY_SECONDS, arguments=arguments)
    return str(answers[0]) if answers else str(ended)


def _page(info: DeviceInfo, outcomes: list[StepOutcome]) -> str:
    failing = [each for each in outcomes if each.kind != RIGHT]
    head = f"{info.name} ({info.platform}, {info.platform_version}, driver {info.driver})"
    lines = [f"# Bring-up of {head}", ""]
    if failing:
        lines += [f"{len(failing)} of {len(outcomes)} steps fail. What this driver lacks:", ""]
        lines += [each.line for each in failing] + [""]
    else:
        lines += [f"All {len(outcomes)} steps pass.", ""]
    return "\n".join([*lines, *(each.line for each in outcomes if each.kind == RIGHT)])
