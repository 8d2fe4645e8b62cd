# SPDX-License-Identifier: Apache-2.0
"""File formats of language models: their signatures' inputs, and where the caches are.

Each pads the last chunk of a prompt. Padding in the caches is beyond the current position, and is
overwritten before it is read. So the caches need room for a whole chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Tensor
from tflite_opencl.console.errors import CommandError

Array = NDArray[Any]
# Runs the graph of a signature: name, inputs by name -> outputs by name.
Call = Callable[[str, Mapping[str, Array]], dict[str, Array]]
_SHUT = -np.inf  # a mask's value for hidden positions


class Form(Protocol):
    """How tokens are run.

    Attributes:
        places: the caches' capacity in tokens.
        vocabulary: number of logits.
    """

    places: int
    vocabulary: int

    def run(self, tokens: Sequence[int], place: int) -> Array:
        """Append tokens to the caches at a position; return logits. Shapes: -> (vocabulary,)"""

    def save(self, count: int) -> dict[str, Array]:
        """Return the caches' content for the first tokens, by name.

        Raises: CommandError: the file has no graph for it.
        """

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore the caches. Raises: ValueError: the state is of another model."""


def form_of(path: str, graphs: Mapping[str, Graph], call: Call) -> Form:
    """Return the format of a file; `graphs`: those of its signatures, by name.

    Raises: CommandError: it has no known format.
    """
    inputs = {name: {*graph.input_names} for name, graph in graphs.items()}
    decode = graphs.get("decode")
    if decode is not None and "logits" in decode.output_names:
        if inputs.get("prefill") == {"tokens", "start", "last"} and _reads_variables(decode):
            return Stateful(graphs, call)
        prefills = [name for name in graphs if name.startswith("prefill")]
        if prefills and all({"tokens", "input_pos"} <= inputs[n] for n in ("decode", *prefills)):
            return Carried(graphs, prefills, call)
    takes = "; ".join(f"{name} takes {', '.join(graphs[name].input_names)}" for name in graphs)
    raise CommandError(f"{path} is no language model that is known: {takes or 'no signatures'}")


class Stateful:
    """The format of network.py: caches are resource variables; `start` is the first position."""

    def __init__(self, graphs: Mapping[str, Graph], call: Call) -> None:
        decode, prefill = graphs["decode"], graphs["prefill"]
        self._call = call
        self._graphs = graphs
        self._piece = _input(prefill, "tokens").shape[0]
        self.vocabulary = _output(decode, "logits").shape[-1]
        self.places = next(n.outputs[0] for n in decode.nodes if n.op == "READ_VARIABLE").shape[1]

    def run(self, tokens: Sequence[int], place: int) -> Array:
        """Shapes: -> (vocabulary,)"""
        found: Array = np.zeros(0)
        while tokens:
            start = np.array([place], np.int32)
            if len(tokens) == 1 or place + self._piece > self.places:
                piece = tokens[:1]
                given = {"tokens": np.array(piece, np.int32), "start": start}
                found = self._call("decode", given)["logits"]
            else:
                piece = tokens[: self._piece]
                padded, last = _padded(piece, self._piece), np.array([len(piece) - 1], np.int32)
                given = {"tokens": padded, "start": start, "last": last}
                found = self._call("prefill", given)["logits"]
            tokens, place = tokens[len(piece) :], place + len(piece)
        return np.asarray(found[0])

    def save(self, count: int) -> dict[str, Array]:
        """Return the filled positions."""
        self._state("save")
        found = self._call("save", {})
        return {name: values[:, :count].copy() for name, values in found.items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore these positions, and zero the others."""
        graph = self._state("restore")
        if state.keys() != graph.input_names.keys():
            raise ValueError("this state is of another model: its caches have other names")
        given = {}
        for name, values in state.items():
            own = _input(graph, name).shape
            (groups, count, head) = values.shape
            if (groups, head) != (own[0], own[2]) or count > own[1]:
                raise ValueError(f"{name} is {values.shape}, and the cache is {own}")
            given[name] = np.zeros(own, np.float32)
            given[name][:, :count] = values
        self._call("restore", given)

    def _state(self, name: str) -> Graph:
        if name not in self._graphs:
            raise CommandError(f"this file has no signature {name}, which state needs")
        return self._graphs[name]


class Carried:
    """The format of litert-torch: caches are inputs and outputs, and `input_pos` has the positions.

    Its prefill returns no logits: decode runs a prompt's last token. Some files require a mask.
    """

    def __init__(self, graphs: Mapping[str, Graph], prefills: Sequence[str], call: Call) -> None:
        self._graphs, self._call = graphs, call
        decode = graphs["decode"]
        self._pieces = {_input(graphs[name], "tokens").shape[-1]: name for name in prefills}
        self.vocabulary = _output(decode, "logits").shape[-1]
        names = [name for name in decode.input_names if name.startswith("kv_cache_")]
        self._caches = {name: _empty(_input(decode, name)) for name in names}
        if "mask" in decode.input_names:
            self.places = _input(decode, "mask").shape[-1]
        else:  # positions or heads come first, depending on the file; heads are fewer
            self.places = max(self._caches[names[0]].shape[1:]) if names else 0

    def run(self, tokens: Sequence[int], place: int) -> Array:
        """Shapes: -> (vocabulary,)"""
        while len(tokens) > 1:
            count = min(len(tokens) - 1, max(self._pieces))
            size = min(size for size in self._pieces if size >= count)
            if place + size > self.places:
                break
            self._step(self._pieces[size], _padded(tokens[:count], size), place)
            tokens, place = tokens[count:], place + count
        for token in tokens:
            found = self._step("decode", np.array([token], np.int32), place)
            place += 1
        return np.asarray(found["logits"].reshape(-1))

    def save(self, count: int) -> dict[str, Array]:
        """Return all of the caches: the axis of positions differs between files."""
        return {name: values.copy() for name, values in self._caches.items()}

    def restore(self, state: Mapping[str, Array]) -> None:
        """Restore them."""
        shapes = {name: values.shape for name, values in self._caches.items()}
        if {name: values.shape for name, values in state.items()} != shapes:
            raise ValueError("this state is of another model: its caches are others")
        self._caches = {name: values.copy() for name, values in state.items()}

    def _step(self, name: str, tokens: Array, place: int) -> dict[str, Array]:
        graph = self._graphs[name]
        at = place + np.arange(len(tokens))
        given = {"tokens": tokens[None], "input_pos": at}
        if "mask" in graph.input_names:
            is_seen = np.arange(self.places) <= at[:, None]
            given["mask"] = np.where(is_seen, 0, _SHUT)[None, None]
        typed = {name: values.astype(_input(graph, name).dtype) for name, values in given.items()}
        found = self._call(name, {**self._caches, **typed})
        self._caches = {name: found[name] for name in self._caches}
        return found


def _reads_variables(graph: Graph) -> bool:
    read = [node.outputs[0] for node in graph.nodes if node.op == "READ_VARIABLE"]
    return bool(read) and all(len(tensor.shape) == 3 for tensor in read)


def _padded(tokens: Sequence[int], size: int) -> Array:
    found = np.zeros(size, np.int32)
    found[: len(tokens)] = tokens
    return found


def _input(graph: Graph, name: str) -> Tensor:
    return graph.tensors[graph.input_names[name]]


def _output(graph: Graph, name: str) -> Tensor:
    return graph.tensors[graph.output_names[name]]


def _empty(tensor: Tensor) -> Array:
    return np.zeros(tensor.shape, tensor.dtype)
