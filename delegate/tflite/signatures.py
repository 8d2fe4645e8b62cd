# SPDX-License-Identifier: Apache-2.0
"""The signatures of a .tflite file: names by which its graphs are run, such as "prefill"."""

from __future__ import annotations

from delegate.errors import SignatureError
from delegate.tflite.table import File


def subgraph_of(content: memoryview, signature: str | None) -> int:
    """Return the number of the subgraph that a signature runs; None: the first.

    Raises:
        SignatureError: the model has no such signature. ModelError: it is damaged or foreign.
    """
    if signature is None:
        return 0
    numbers = {
        each.string("signature_key"): int(each.scalar("subgraph_index"))
        for each in File(content).root().tables("signature_defs", "signature")
    }
    if signature not in numbers:
        there = ", ".join(map(repr, numbers)) or "none"
        raise SignatureError(f"there is no signature {signature!r}; the model has {there}")
    return numbers[signature]
