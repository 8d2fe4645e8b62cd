# SPDX-License-Identifier: Apache-2.0
"""The signatures of a .tflite file: names by which its graphs are run, such as "prefill"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from delegate.errors import SignatureError
from delegate.tflite.table import File, Table


@dataclass(frozen=True, slots=True)
class Signature:
    """The graph that a signature runs, and what it calls its tensors: name -> index."""

    subgraph: int = 0
    inputs: Mapping[str, int] = field(default_factory=dict)
    outputs: Mapping[str, int] = field(default_factory=dict)


def signature_of(content: memoryview, name: str | None) -> Signature:
    """Return the signature of this name; None: the first subgraph without names.

    Raises:
        SignatureError: the model has no such signature. ModelError: it is damaged or foreign.
    """
    if name is None:
        return Signature()
    found = {
        each.string("signature_key"): each
        for each in File(content).root().tables("signature_defs", "signature")
    }
    if name not in found:
        there = ", ".join(map(repr, found)) or "none"
        raise SignatureError(f"there is no signature {name!r}; the model has {there}")
    own = found[name]
    inputs, outputs = (_names(own, which) for which in ("inputs", "outputs"))
    return Signature(int(own.scalar("subgraph_index")), inputs, outputs)


def _names(signature: Table, which: str) -> dict[str, int]:
    maps = signature.tables(which, "name")
    return {each.string("name"): int(each.scalar("tensor_index")) for each in maps}
