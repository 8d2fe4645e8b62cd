# SPDX-License-Identifier: Apache-2.0
"""The models of a service: read, opened and tuned before it reports ready."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from delegate import DeviceError, Options
from delegate.inspect import Graph
from tflite_opencl.console.errors import CommandError, DelegateFailed, one_line
from tflite_opencl.console.exit_codes import USAGE
from tflite_opencl.harness.feeds import feeds_of
from tflite_opencl.interpreters.interpreter import read_graph
from tflite_opencl.interpreters.runtime import Runtime
from tflite_opencl.pictures.layout import layout_of
from tflite_opencl.serve.metrics import Metrics
from tflite_opencl.serve.pictures import Pictures
from tflite_opencl.serve.runners import Runner, open_runner, sized
from tflite_opencl.serve.tensors import ModelSignature, signature_of
from tflite_opencl.serve.worker import BatchingOptions, BatchScheduler

log = logging.getLogger("tflite_opencl")
VERSION = "1"  # of each model


class Entry(NamedTuple):
    """A graph of a file, under the name that clients use; `signature` None: the first."""

    name: str
    path: str
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """The models to serve, and how."""

    models: Sequence[Entry]
    options: Options  # of the delegate
    limits: BatchingOptions
    falls_back: bool  # to the CPU
    labels: str | None = None  # a file
    task: str | None = None  # as for label_image's --task
    processes: int = 1  # decoding processes
    size: tuple[int, int] | None = None  # of picture inputs that leave it open


@dataclass(frozen=True, slots=True)
class Served:
    """A model ready to serve."""

    name: str
    signature: ModelSignature
    worker: BatchScheduler
    pictures: Pictures | None  # None: it has no picture input
    most: int  # pictures per request

    @property
    def metadata(self) -> dict[str, Any]:
        """Its metadata in the protocol."""
        several = self.signature.takes_several
        return {
            "name": self.name,
            "versions": [VERSION],
            "platform": "tflite",
            "inputs": [each.metadata(several) for each in self.signature.inputs],
            "outputs": [each.metadata(several) for each in self.signature.outputs],
        }

    @property
    def state(self) -> dict[str, Any]:
        """What runs it now, for `ready`."""
        runner, failure = self.worker.runner, self.worker.failure
        told: dict[str, Any] = {"name": self.name, "ready": runner is not None}
        if runner is not None:
            nodes, count = runner.nodes
            told |= {"device": runner.device, "nodes_on_opencl": nodes, "nodes": count}
            told["batches"] = [*runner.sizes]
        return told | ({"failure": failure} if failure else {})

    def close(self) -> None:
        self.worker.close()
        if self.pictures is not None:
            self.pictures.close()


def named(arguments: Sequence[str], signatures: Sequence[str] = ()) -> Sequence[Entry]:
    """Parse the models: `NAME=FILE`, or FILE, whose name is used without its suffix.

    `signatures`: of each file; their models are named NAME.SIGNATURE.
    Raises: CommandError: a name is repeated, or not valid in a URL.
    """
    found: dict[str, str] = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        if not equals or os.path.exists(argument):
            path = argument
            name = os.path.splitext(os.path.basename(argument))[0]
        if not name or "/" in name or not name.isprintable():
            raise CommandError(f"{argument}: NAME=FILE with another name is needed", USAGE)
        if name in found:
            raise CommandError(f"{found[name]} and {path} are both {name}: NAME=FILE", USAGE)
        found[name] = path
    if not signatures:
        return [*itertools.starmap(Entry, found.items())]
    for signature in signatures:
        if not signature or "/" in signature or not signature.isprintable():
            raise CommandError(f"--signature {signature}: no part of an address", USAGE)
        if signatures.count(signature) > 1:
            raise CommandError(f"--signature {signature} is given twice", USAGE)
    return [
        Entry(f"{name}.{signature}", path, signature)
        for name, path in found.items()
        for signature in signatures
    ]


def load(wanted: Wanted, runtime: Runtime, metrics: Metrics) -> Sequence[Served]:
    """Return the models, ready to run.

    Raises: OneLineError, DelegateError: one of them cannot be served; then none is.
    """
    # Read all before tuning the first, to report mistakes early.
    read = (read_graph(each.path, each.signature) for each in wanted.models)
    graphs = [sized(graph, wanted.size) for graph in read]
    signatures = [
        signature_of(each.path, graph)
        for graph, each in zip(graphs, wanted.models, strict=True)
    ]  # fmt: skip
    pictures = [_pictures(wanted, *each) for each in zip(graphs, wanted.models, strict=True)]
    served: list[Served] = []
    try:
        for entry, graph, signature, reads in zip(
            wanted.models, graphs, signatures, pictures, strict=True
        ):
            opened = _Opened(entry, graph, wanted, runtime, signature)
            served.append(_served(opened, reads, metrics))
    except BaseException:
        for each in served:
            each.close()
        raise
    return served


@dataclass(frozen=True, slots=True)
class _Opened:
    entry: Entry
    graph: Graph
    wanted: Wanted
    runtime: Runtime
    signature: ModelSignature

    @property
    def most(self) -> int:
        """Pictures per request; a run may combine several requests."""
        return self.wanted.limits.pictures if self.signature.takes_several else 1

    def on_device(self) -> Runner:
        """Open it on OpenCL; raises as `open_runner`."""
        return self._on(self.wanted.options)

    def on_cpu(self) -> Runner:
        """Open it on TFLite's kernels; raises RunError."""
        return self._on(None)

    def _on(self, options: Options | None) -> Runner:
        name, path, _ = self.entry
        return open_runner(name, self.graph, path, options, self.most, self.runtime)


def _pictures(wanted: Wanted, graph: Graph, entry: Entry) -> Pictures | None:
    number = feeds_of(graph, (), is_image_asked=True).picture
    layout = None if number is None else layout_of(graph.inputs[number].shape)
    if layout is None or layout.batch > 1:  # a request has only one picture
        return None
    own = wanted.labels, wanted.task, wanted.processes
    return Pictures(entry.path, *own, graph=graph)


def _served(opened: _Opened, pictures: Pictures | None, metrics: Metrics) -> Served:
    name, wanted = opened.entry.name, opened.wanted
    fallback = opened.on_cpu if wanted.falls_back else None
    try:
        runner = opened.on_device()
    except (DeviceError, DelegateFailed) as error:
        if fallback is None:
            raise
        log.warning("%s: the CPU runs it: %s", name, one_line(error))
        runner, fallback = fallback(), None
    nodes, count = runner.nodes
    log.info(
        "%s: %d of %d nodes on OpenCL, %s, batches of %s",
        name, nodes, count, runner.device, ", ".join(map(str, runner.sizes)),
        extra={"fields": {"model": name, "device": runner.device}},
    )  # fmt: skip

    def listen(requests: int, pictures: int, seconds: float) -> None:
        metrics.ran(name, pictures, seconds)

    worker = BatchScheduler(runner, wanted.limits, fallback, listen)
    return Served(name, opened.signature, worker, pictures, opened.most)
