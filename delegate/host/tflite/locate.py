# SPDX-License-Identifier: Apache-2.0
"""Finds the flatbuffer that an interpreter was made from, in the memory that TFLite holds.

Names and constants are not copied: each lies inside the flatbuffer, wherever that is (a mapped
file, the heap, a bytes object). So the format's identifier is searched for below the lowest of
them. A find is believed only if every name and every constant lies where the flatbuffer says. That
also tells the subgraph. TFLite takes a file's first root; a second one inside may share all names
and constants with it, and have other operators. So the search goes on to the start of the memory.
LiteRT's CompiledModel gives the inputs and outputs of signatures the signatures' names, in memory
of its own: those are compared as texts, and may lie below the flatbuffer in the same memory.
Source: tflite/core/interpreter_builder.cc ParseTensors, UseSignatureTensorNames
"""

from __future__ import annotations

import bisect
import ctypes as C
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from delegate.errors import ModelError
from delegate.format import schema
from delegate.format.table import MAX_FILE_BYTES, File, Table
from delegate.host.tflite import abi

_CHUNK_BYTES = 1 << 16
_IDENTIFIER_AT = 4  # bytes from a flatbuffer's start


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """A flatbuffer in memory."""

    # From its first byte to the end of the memory around it: a flatbuffer does not tell its size.
    # TFLite keeps it as long as the interpreter, and this view does not prolong its life.
    content: memoryview
    subgraph: int  # the number of the one that the interpreter's tensors are of


@dataclass(frozen=True, slots=True)
class _Addresses:
    """Where TFLite has the names and the constants, by tensor index."""

    names: dict[int, int]  # of a tensor without a name, TFLite's own ""
    constants: dict[int, int]
    anchors: list[int]  # those that lie in the flatbuffer, in rising order


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of memory: where it starts and ends, and its lowest and highest anchor."""

    start: int
    lowest: int
    highest: int
    end: int


def locate(context: int, known: memoryview | None = None) -> ModelLocation | None:
    """Return the flatbuffer behind a TfLiteContext; None: no tensor has a name or a constant.

    `known`: where another graph of the same interpreter was found.

    Raises:
        ModelError: it is not there, there are two, or this process may not look.
    """
    addresses = _addresses(context)
    if not addresses.anchors:
        return None
    if known is not None and (number := _subgraph_at(known, addresses)) is not None:
        return ModelLocation(known, number)
    try:
        for piece in _pieces(addresses.anchors):
            found = [*_locations(piece.start, piece.lowest, piece.end, addresses)]
            found = found or [*_locations(piece.lowest, piece.highest, piece.end, addresses)]
            if len(found) > 1:
                raise ModelError(
                    "the model has two roots, of which TFLite takes the first: give OpenCLDelegate "
                    "its path, if you trust it"
                )
            if found:
                return found[0]
    except OSError as error:
        raise ModelError(f"the model cannot be looked for in memory: {error}") from None
    raise ModelError("the model is not found in memory")


def _locations(start: int, anchor: int, end: int, addresses: _Addresses) -> Iterator[ModelLocation]:
    """Yield each flatbuffer of a piece of memory that TFLite's tensors may be of."""
    for base in _candidates(start, anchor):
        size = min(end - base, MAX_FILE_BYTES)
        content = memoryview((C.c_ubyte * size).from_address(base)).cast("B").toreadonly()
        subgraph = _subgraph_at(content, addresses)
        if subgraph is not None:
            yield ModelLocation(content, subgraph)


def _addresses(context: int) -> _Addresses:
    view = abi.Context.from_address(context)
    names, constants = {}, {}
    for index in range(view.tensors_size):
        tensor = view.tensors[index]
        if tensor.name:
            names[index] = tensor.name
        if tensor.allocation_type == abi.READ_ONLY and tensor.data and tensor.bytes:
            constants[index] = tensor.data
    real_names = [at for at in names.values() if C.string_at(at, 1) != b"\0"]
    return _Addresses(names, constants, sorted((*real_names, *constants.values())))


def _pieces(anchors: list[int]) -> Iterator[_Piece]:
    """Yield each piece of memory that holds anchors.

    `anchors`: in rising order. They may lie apart: another delegate's tensors have its own names.
    """
    for start, end in _readable(anchors[-1]):
        held = anchors[bisect.bisect_left(anchors, start) : bisect.bisect_left(anchors, end)]
        if held:
            yield _Piece(start, held[0], held[-1], end)


def _readable(last_wanted: int) -> list[tuple[int, int]]:
    """Return the process's readable memory in rising order: from where to where.

    `last_wanted`: an address; what begins behind it may be left out. PoCL maps a file or more for
    each kernel.
    """
    joined: list[tuple[int, int]] = []
    last: list[str] = []
    with open("/proc/self/maps", errors="replace") as maps:
        for line in maps:
            span, mode, _, _, _, *path = line.split(maxsplit=5)
            if not mode.startswith("r"):
                continue
            low, high = (int(part, 16) for part in span.split("-"))
            if low > last_wanted and path != last:
                break
            # The kernel tells a heap, or a file of which a part is protected in another way, in
            # pieces. What is of another file is left apart: it may be a device's memory.
            if joined and joined[-1][1] == low and path == last:
                joined[-1] = joined[-1][0], high
            else:
                joined.append((low, high))
            last = path
    return joined


def _candidates(start: int, anchor: int) -> Iterator[int]:
    """Yield where a flatbuffer that holds the anchor may begin, the nearest first."""
    identifier = schema.FILE_IDENTIFIER
    # Through this file, memory that another thread gives back meanwhile is an error, not the end.
    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        high = anchor
        while high > start:
            low = max(start, high - _CHUNK_BYTES)
            # An identifier may lie across two chunks.
            try:
                content = os.pread(memory, high - low + len(identifier) - 1, low)
            except OSError:
                return
            at = content.rfind(identifier)
            while at >= 0:
                if low + at - _IDENTIFIER_AT >= start:
                    yield low + at - _IDENTIFIER_AT
                at = content.rfind(identifier, 0, at + len(identifier) - 1)
            high = low
    finally:
        os.close(memory)


def _subgraph_at(content: memoryview, addresses: _Addresses) -> int | None:
    """Return which subgraph TFLite's tensors are of; None: this is no such model."""
    base = np.frombuffer(content, np.uint8).__array_interface__["data"][0]
    try:
        model = File(content).root()
        buffers = [table.span("data") for table in model.tables("buffers", "buffer")]
        for number, subgraph in enumerate(model.tables("subgraphs", "subgraph")):
            if _lie_in(subgraph, base, buffers, _signature_names(model, number), addresses):
                return number
    except ModelError:
        pass  # the identifier stood there by chance
    return None


def _signature_names(model: Table, subgraph: int) -> dict[int, set[bytes]]:
    """Return the names that signatures have for tensors of a subgraph, by tensor index."""
    found: dict[int, set[bytes]] = {}
    for signature in model.tables("signature_defs", "signature"):
        if signature.scalar("subgraph_index") == subgraph:
            for field in ("inputs", "outputs"):
                for each in signature.tables(field, "tensor of a signature"):
                    found.setdefault(each.scalar("tensor_index"), set()).add(each.copy("name"))
    return found


def _lie_in(
    subgraph: Table,
    base: int,
    buffers: list[tuple[int, int]],
    renamed: dict[int, set[bytes]],
    addresses: _Addresses,
) -> bool:
    """Whether every name and every constant of a subgraph lies where TFLite has it.

    `renamed`: other texts that the name of a tensor may be, wherever it lies.
    """
    found = 0
    for index, tensor in enumerate(subgraph.tables("tensors", "tensor")):
        at, length = tensor.span("name")
        name = addresses.names.get(index)
        if length and name == base + at:
            found += 1
        elif length and not (name and C.string_at(name) in renamed.get(index, ())):
            return False
        buffer = tensor.scalar("buffer")
        at, length = buffers[buffer] if 0 < buffer < len(buffers) else (0, 0)
        if length and index in addresses.constants:
            if addresses.constants[index] != base + at:
                return False
            found += 1
    return found > 0
