# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl serve`: serves models over HTTP: the Open Inference Protocol, and pictures."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import math
import os
import signal
from dataclasses import replace
from functools import partial

from delegate.inspect import usable_processors
from tflite_opencl.cli.flag_values import at_most, not_negative, one_of, positive
from tflite_opencl.cli.flags import (
    add_device_arguments,
    add_flag,
    add_models,
    models_of,
    options_of,
)
from tflite_opencl.cli.logs import lines_on_stderr, routed
from tflite_opencl.console.errors import CommandError
from tflite_opencl.interpreters.runtime import runtime_if_any

HELP = "answer over HTTP: the Open Inference Protocol, and POST /classify with a picture"
EXAMPLES = (
    ("tflite-opencl serve model.tflite", "on this machine alone, http://127.0.0.1:8500"),
    ("tflite-opencl serve cats=a.tflite dogs=b.tflite --listen 0.0.0.0:80 --fallback cpu",
     "two models under names, for everybody, on the CPU if the device fails"),
    ("tflite-opencl serve gemma.tflite --signature prefill --signature decode",
     "a file of several graphs, as gemma.prefill and gemma.decode"),
)  # fmt: skip
_MOST_BODIES = 16  # maximum-size bodies in flight at once
_MEGABYTE = 1 << 20
_LONGEST_RUN = 5  # times --device_timeout


def address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT or [HOST]:PORT."""
    host, colon, port = text.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 65536
    if not (colon and is_port) or (":" in host and not host.startswith("[")):
        raise argparse.ArgumentTypeError(f"'{text}' is not HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this subcommand's arguments."""
    add = parser.add_argument
    add_models(parser, ", or NAME=FILE")
    add_flag(
        parser,
        "signature",
        [],
        "; it may stand several times, and each is the model NAME.SIGNATURE",
        action="append",
    )
    add("--listen", metavar="HOST:PORT", type=address, default=("127.0.0.1", 8500),
        help="where to listen (default: 127.0.0.1:8500, which this machine alone reaches; port 0: "
        "any free one)",
    )  # fmt: skip
    add("--fallback", metavar="none|cpu", type=one_of("none", "cpu"), default="none",
        help="what runs a model when its device has failed (default: none)",
    )  # fmt: skip
    add_device_arguments(parser, tune="full", may_leave=False)
    add_flag(parser, "labels")
    add_flag(parser, "input_size")
    add("--max_batch", metavar="N", type=at_most(1024, positive), default=8,
        help="pictures in a run and in a request (default: 8); requests are joined where that is "
        "faster",
    )  # fmt: skip
    add("--max_delay", metavar="MS", type=at_most(10_000, not_negative), default=0,
        help="milliseconds that a request may wait for others to join (default: 0, those that "
        "wait anyway)",
    )  # fmt: skip
    add("--queue", metavar="N", type=at_most(100_000, positive), default=256,
        help="requests that may be under way; more are told to come again (default: 256)",
    )  # fmt: skip
    add("--max_body", metavar="MB", type=at_most(1024, positive), default=16,
        help="the largest request in MiB (default: 16)",
    )  # fmt: skip
    add_flag(parser, "timeout", 30.0, "; here: for a request to arrive")
    add_flag(parser, "isolate", "true")
    add_flag(parser, "device_timeout", 60.0, "; without --isolate it has no limit")


def run(options: argparse.Namespace) -> str:
    """Serve until SIGTERM or Ctrl-C; return the text to print. SIGHUP loads the models again.

    Raises: CommandError: a model cannot be served, the address is not available, or aiohttp or
        prometheus-client is not installed. KeyboardInterrupt: ended by Ctrl-C.
    """
    for module, package in (("aiohttp", "aiohttp"), ("prometheus_client", "prometheus-client")):
        try:
            importlib.import_module(module)
        except ImportError as error:
            why = f"{package} is not installed: pip install 'tflite-opencl[serve]'"
            raise CommandError(why) from error
    with routed(lines_on_stderr(logging.WARNING if options.quiet else logging.INFO)):
        answers, was_ctrl_c = asyncio.run(_served(options))
    if was_ctrl_c:
        raise KeyboardInterrupt
    return _summary(answers)


async def _served(options: argparse.Namespace) -> tuple[dict[int, int], bool]:
    """Serve; return the number of responses by status, and whether Ctrl-C ended it."""
    # Optional dependencies, which other subcommands should not wait for.
    from tflite_opencl.serve.life import serve
    from tflite_opencl.serve.metrics import Metrics
    from tflite_opencl.serve.models import Wanted, load, named
    from tflite_opencl.serve.server import Bounds, Server
    from tflite_opencl.serve.worker import BatchingOptions

    wanted = Wanted(
        models=named(models_of(options), options.signature),
        options=replace(
            options_of(options, (), profiling=False),
            isolate=options.isolate,
            run_timeout=options.device_timeout,
        ),
        limits=BatchingOptions(options.queue, options.max_batch, options.max_delay / 1e3),
        falls_back=options.fallback == "cpu",
        labels=options.labels,
        processes=usable_processors(),
        size=options.input_size,
    )
    body = options.max_body * _MEGABYTE
    metrics = Metrics()
    server = Server(Bounds(body, _MOST_BODIES * body, options.queue, options.timeout), metrics)
    end, pressed, reload = asyncio.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def ctrl_c() -> None:
        if pressed.is_set():  # a second signal ends it immediately
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        pressed.set()
        end.set()

    loop.add_signal_handler(signal.SIGTERM, end.set)
    loop.add_signal_handler(signal.SIGINT, ctrl_c)
    loop.add_signal_handler(signal.SIGHUP, reload.set)
    loads = partial(load, wanted, runtime_if_any(), metrics)
    # A run that fails is repeated after one on zeros, which a new process may have to open.
    longest_s = _LONGEST_RUN * options.device_timeout or math.inf
    await serve(
        server, options.listen, loads, end, options.timeout, reload=reload, longest_run=longest_s
    )
    return server.answers, pressed.is_set()


def _summary(answers: dict[int, int]) -> str:
    good = sum(count for status, count in answers.items() if status < 400)
    busy = sum(count for status, count in answers.items() if status >= 500)
    wrong = sum(answers.values()) - good - busy
    return f"ended: {good} requests answered, {wrong} refused as wrong, {busy} could not be served"
