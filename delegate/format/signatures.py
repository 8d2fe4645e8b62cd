# SPDX-License-Identifier: Apache-2.0
"""Signatures of a .tflite file: named entry points, such as "prefill"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from delegate.errors import SignatureError
from delegate.format.table import File, Table


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature's subgraph, and its names of tensors: name -> index."""

    subgraph: int = 0
    inputs: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, int] = field(default_factory=dict)


def signatures_of(content: memoryview) -> dict[str, Signature]:
    """Return a model's signatures by name.

    Raises:
        ModelError: the model is damaged or of another format.
    """
    tables = File(content).root().tables("signature_defs", "signature")
    return {each.string("signature_key"): _signature(each) for each in tables}


def signature_of(content: memoryview, name: str) -> Signature:
    """Return the signature of this name.

    Raises:
        SignatureError: no such signature. ModelError: it is damaged or of another format.
    """
    found = signatures_of(content)
    if name not in found:
        there = ", ".join(map(repr, found)) or "none"
        raise SignatureError(f"there is no signature {name!r}; the model has {there}")
    return found[name]


def _signature(table: Table) -> Signature:
    inputs, outputs = (_names(table, which) for which in ("inputs", "outputs"))
    return Signature(int(table.scalar("subgraph_index")), inputs, outputs)


def _names(signature: Table, which: str) -> dict[str, int]:
    maps = signature.tables(which, "name")
    return {each.string("name"): int(each.scalar("tensor_index")) for each in maps}
