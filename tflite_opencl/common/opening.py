# SPDX-License-Identifier: Apache-2.0
"""What subcommands that run a model share: its file, the device that is meant, an interpreter."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

from delegate import DelegateError, OpenCLDelegate, Options
from delegate.inspect import Graph, read_model
from tflite_opencl.common import bars, interrupts
from tflite_opencl.common.environment import device_asked
from tflite_opencl.common.errors import CommandError, OneLineError, code_of
from tflite_opencl.common.flags import add_flags
from tflite_opencl.common.interpreter import allocated, delegate_for
from tflite_opencl.common.runtime import Runtime
from tflite_opencl.common.words import known_ops


def add_device_arguments(parser: argparse.ArgumentParser, tune: str = "quick") -> None:
    """Add the arguments that say where a model runs; `tune`: the default of --tune."""
    add_flags(parser, "device", "device_profile", exclude_ops=(), tune=tune)


def options_of(given: argparse.Namespace, graphs: Iterable[Graph], profiling: bool) -> Options:
    """Return what the delegate is told; `profiling`: launches stay apart.

    Raises:
        CommandError: --exclude_ops names an op that neither TFLite nor a graph has.
    """
    with one_line():
        exclude_ops = known_ops(given.exclude_ops, graphs)
    return Options(
        device=device_asked(given.device),
        exclude_ops=exclude_ops,
        device_profile=given.device_profile,
        tune=given.tune,
        profiling=profiling,
        alternative=getattr(given, "alternative", None),
    )


def read_graph(path: str) -> Graph:
    """Return a model's graph.

    Raises:
        CommandError: the file cannot be read, or is no model.
    """
    try:
        return read_model(path)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror or error}") from error
    except DelegateError as error:
        raise CommandError(str(error)) from error


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Turn the errors of runtimes, pictures and devices into CommandError."""
    try:
        yield
    except (OneLineError, DelegateError) as error:
        raise CommandError(" ".join(str(error).split()), code_of(error)) from error


@contextlib.contextmanager
def delegated(
    model: str,
    graph: Graph,
    options: Options,
    runtime: Runtime,
    cpu_kernels: str,
    is_shown: bool = True,
) -> Iterator[tuple[Any, OpenCLDelegate]]:
    """Give an allocated interpreter with the delegate, and the delegate; closed in the end.

    `graph`: the model's, as it was read. `is_shown`: a terminal shows how far the start is.
    Raises:
        CommandError: TFLite refuses the model, or the delegate fails. DelegateError: no device.
    """
    with contextlib.ExitStack() as stack:
        with bars.start(os.path.basename(model)) if is_shown else contextlib.nullcontext():
            delegate = stack.enter_context(delegate_for(graph, runtime, options))
            with failures(model, delegate):
                made = allocated(runtime, model, cpu_kernels, [delegate])
        yield made, delegate


@contextlib.contextmanager
def failures(model: str = "the model", delegate: OpenCLDelegate | None = None) -> Iterator[None]:
    """Turn TFLite's errors into a CommandError, which tells what the delegate says of it."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        interrupts.check()  # TFLite makes an error of Ctrl-C
        raise failed(model, (delegate.failure if delegate else None) or error) from error


def failed(model: str, error: object) -> CommandError:
    """Return the error of a model that does not run."""
    return CommandError(f"{model} does not run: {' '.join(str(error).split())}")
