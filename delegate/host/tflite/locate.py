# SPDX-License-Identifier: Apache-2.0
"""Finds the flatbuffer that an interpreter was created from, in TFLite's memory.

Names and constants are not copied: each is inside the flatbuffer, wherever that is (a mapped file,
the heap, a bytes object). So the format's identifier is searched for below the lowest of them. A
candidate is accepted only if every name and constant is where the flatbuffer says; that also
identifies the subgraph. TFLite uses a file's first root; a second one inside may share all names
and constants with it, and have other operators. So the search continues to the start of the memory.
LiteRT's CompiledModel renames the inputs and outputs to the signatures' names, in its own memory:
those are compared as strings, and may be below the flatbuffer in the same memory.
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

    # From its first byte to the end of the memory mapping: a flatbuffer does not store its size.
    # TFLite keeps it as long as the interpreter; this view does not extend its lifetime.
    content: memoryview
    subgraph: int  # index of the interpreter's subgraph


@dataclass(frozen=True, slots=True)
class _Addresses:
    """Addresses of TFLite's names and constants, by tensor index."""

    names: dict[int, int]  # for a tensor without a name, TFLite's own ""
    constants: dict[int, int]
    anchors: list[int]  # those inside the flatbuffer, ascending


@dataclass(frozen=True, slots=True)
class _Piece:
    """A memory range: start, end, and its lowest and highest anchor."""

    start: int
    lowest: int
    highest: int
    end: int


def locate(context: int, known: memoryview | None = None) -> ModelLocation | None:
    """Return the flatbuffer behind a TfLiteContext; None: no tensor has a name or a constant.

    `known`: that of another graph of the same interpreter.

    Raises:
        ModelError: it is not found, there are two, or memory cannot be read.
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
    """Yield each matching flatbuffer in a memory range."""
    for base in _candidates(start, anchor):
        size = min(end - base, MAX_FILE_BYTES)
        content = memoryview((C.c_ubyte * size).from_address(base)).cast("B").toreadonly()
        subgraph = _subgraph_at(content, addresses)
        if subgraph is not None:
            yield ModelLocation(content, subgraph)


def _addresses(context: int) -> _Addresses:
    view = abi.TfLiteContext.from_address(context)
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
    """Yield each memory range that contains anchors.

    `anchors`: ascending. They may be far apart: another delegate's tensors have its own names.
    """
    for start, end in _readable(anchors[-1]):
        held = anchors[bisect.bisect_left(anchors, start) : bisect.bisect_left(anchors, end)]
        if held:
            yield _Piece(start, held[0], held[-1], end)


def _readable(last_wanted: int) -> list[tuple[int, int]]:
    """Return the process's readable memory ranges, ascending.

    `last_wanted`: an address; ranges above it may be omitted. PoCL maps at least one file for
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
            # The kernel splits a heap, or a file with differing protections, into several
            # ranges. Those of another file stay separate: they may be device memory.
            if joined and joined[-1][1] == low and path == last:
                joined[-1] = joined[-1][0], high
            else:
                joined.append((low, high))
            last = path
    return joined


def _candidates(start: int, anchor: int) -> Iterator[int]:
    """Yield possible start addresses of a flatbuffer with the anchor, nearest first."""
    identifier = schema.FILE_IDENTIFIER
    # Read through this file, memory freed by another thread is an error instead of a crash.
    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        high = anchor
        while high > start:
            low = max(start, high - _CHUNK_BYTES)
            # An identifier may straddle two chunks.
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
    """Return the subgraph of TFLite's tensors; None: not the model."""
    base = np.frombuffer(content, np.uint8).__array_interface__["data"][0]
    try:
        model = File(content).root()
        buffers = [table.span("data") for table in model.tables("buffers", "buffer")]
        for number, subgraph in enumerate(model.tables("subgraphs", "subgraph")):
            if _lie_in(subgraph, base, buffers, _signature_names(model, number), addresses):
                return number
    except ModelError:
        pass  # a coincidental match of the identifier
    return None


def _signature_names(model: Table, subgraph: int) -> dict[int, set[bytes]]:
    """Return the names that signatures give to a subgraph's tensors, by tensor index."""
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
    """Whether every name and constant of a subgraph is where TFLite has it.

    `renamed`: alternative names of tensors, at any address.
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
