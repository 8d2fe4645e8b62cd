# SPDX-License-Identifier: Apache-2.0
"""The delegate in a shared library, for programs in any language: options are strings.

delegate/host/plugin.c calls `create`. A CompiledModel of LiteRT cannot pass options; it uses those
of the environment variable TFLITE_OPENCL_OPTIONS, passed on by delegate/host/accelerator.c.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from delegate.errors import DelegateError
from delegate.graph.ir import Graph
from delegate.graph.verdict import refusals
from delegate.host.opencl_delegate import OpenCLDelegate
from delegate.host.tflite.callbacks import Constants, PlannedNode, Shapes
from delegate.host.tflite.plugin import ThreadKeeper, answer, made
from delegate.options import Options

_log = logging.getLogger("delegate")
_nodes = logging.getLogger("delegate.nodes")  # one line a graph, shown by default
_FORMAT = "%(levelname)s: OpenCL delegate: %(message)s"
_MODEL, _VERBOSE, _COMPILED_MODEL = "model", "verbose", "compiled_model"


class _Delegate(OpenCLDelegate):
    """Logs how many nodes it took: programs in other languages cannot see `verdicts`."""

    def partition(self, context: int, nodes: tuple[int, ...]) -> Any:
        return ThreadKeeper(super().partition(context, nodes))

    def _judge(
        self, context: int, graph: Graph, shapes: Shapes, present: Collection[int]
    ) -> Sequence[int]:
        claimed = super()._judge(context, graph, shapes, present)
        verdicts = self.subgraph_verdicts[graph.subgraph]
        where = f" of graph {graph.subgraph}" if graph.subgraph else ""
        counts = f"{len(claimed)} of {len(verdicts)} nodes{where}"
        left = [f"{count} x {op} ({why})" for (op, why), count in refusals(verdicts)]
        _nodes.log(
            logging.WARNING if left else logging.INFO,
            "%s run on %s%s",
            counts,
            self.device_name,
            f"; on the CPU: {', '.join(left)}" if left else "",
        )
        return claimed


class _Accelerator(_Delegate):
    """A CompiledModel's: an error leaves the model on the CPU instead of failing."""

    def claim(
        self, context: int, plan: Sequence[PlannedNode], shapes: Shapes, constants: Constants
    ) -> Sequence[int]:
        try:
            return super().claim(context, plan, shapes, constants)
        except (DelegateError, OSError) as error:
            self.failed(error)
            _nodes.error("%s; the model is left to the CPU", error)
            return ()


def accelerators() -> list[OpenCLDelegate]:
    """Return the delegates of this process's CompiledModels, newest last."""
    return [each for each in made() if isinstance(each, _Accelerator)]


def create(address: int) -> None:
    """Answer a C program's request for a delegate."""
    answer(address, _make)


def _make(texts: Mapping[str, str]) -> OpenCLDelegate:
    """Return a delegate with these options.

    Raises:
        ValueError: unknown option or invalid value.
        Others: as OpenCLDelegate.
    """
    compiled_model = texts.get(_COMPILED_MODEL)
    own = dict(texts) if compiled_model is None else _pairs(compiled_model)
    kind = _Delegate if compiled_model is None else _Accelerator
    model = own.pop(_MODEL, None)
    if _parse(_VERBOSE, own.pop(_VERBOSE, "0"), _truth):
        _show(_log, logging.DEBUG)
    _show(_nodes, logging.INFO)
    return kind(model, options=options_of(own))


def _pairs(text: str) -> dict[str, str]:
    """Parse options such as "tune:off;device:pocl"."""
    found = {}
    for item in filter(None, text.split(";")):
        key, colon, value = item.partition(":")
        if not colon:
            raise ValueError(f"TFLITE_OPENCL_OPTIONS: '{item}' is not key:value")
        found[key] = value
    return found


def options_of(texts: Mapping[str, str]) -> Options:
    """Parse options; elements of lists are separated by commas or spaces.

    Raises:
        ValueError: unknown option or invalid value.
    """
    kinds = {field.name: field.type for field in fields(Options)}
    values = {}
    for name, text in texts.items():
        if name not in kinds:
            known = ", ".join(sorted((*kinds, _MODEL, _VERBOSE)))
            raise ValueError(f"there is no option {name}; there are {known}")
        values[name] = _parse(name, text, _READERS[kinds[name]])
    return Options(**values)


def _parse(name: str, text: str, reader: Callable[[str], Any]) -> Any:
    try:
        return reader(text)
    except ValueError as error:
        raise ValueError(f"option {name}={text}: {error}") from None


def _truth(text: str) -> bool:
    words = {"1": True, "true": True, "0": False, "false": False}
    if text.lower() not in words:
        raise ValueError("1, 0, true or false is wanted")
    return words[text.lower()]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


# By the type annotations of Options.
_READERS: Mapping[Any, Callable[[str], Any]] = {
    "str": str,
    "str | None": str,
    "str | os.PathLike[str] | None": str,
    "str | DeviceProfile | None": str,
    "str | int | None": str,
    "int": int,
    "float": float,
    "bool": _truth,
    "Iterable[str]": _words,
}


def _show(logger: logging.Logger, level: int) -> None:
    """Write a logger's messages to stderr, unless the program has its own handlers."""
    if not logger.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(_FORMAT))
        logger.addHandler(handler)
    logger.setLevel(level)
