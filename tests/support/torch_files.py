# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in PyTorch's legacy format, made without PyTorch."""

from __future__ import annotations

import io
import pickle
import struct
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

MAGIC = 0x1950A86A20F9469CFC6C
SYSTEM = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}
VALUES = np.arange(24, dtype="<f4")


class Storage:
    """Pickled as torch does: by a persistent id, its data elsewhere in the file."""

    def __init__(self, key: str, kind: str, count: int) -> None:
        self.id = ("storage", kind, key, "cpu", count, None)


class Call:
    """Pickled as a call of `function`, given as (module, name)."""

    def __init__(self, function: tuple[str, str], *arguments: Any) -> None:
        self.function = function
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr(sys.modules[self.function[0]], self.function[1]), self.arguments


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, Storage):
            return None
        kind, name, *rest = obj.id
        return (kind, getattr(sys.modules["torch"], str(name)), *rest)


@contextmanager
def fake_torch() -> Iterator[None]:
    """Give pickle the names that a checkpoint refers to; nothing of them is ever called."""
    with pytest.MonkeyPatch.context() as patch:
        for module_name, names in {
            "torch": ("FloatStorage", "LongStorage", "HalfStorage"),
            "torch._utils": ("_rebuild_tensor_v2",),
        }.items():
            module = ModuleType(module_name)
            for name in names:
                setattr(module, name, type(name, (), {"__module__": module_name}))
            patch.setitem(sys.modules, module_name, module)
        yield


def stored_tensor(
    shape: tuple[Any, ...],
    stride: tuple[Any, ...],
    offset: Any = 0,
    kind: str = "FloatStorage",
    count: Any = 24,
) -> Call:
    storage = Storage("key", kind, count)
    return Call(
        ("torch._utils", "_rebuild_tensor_v2"), storage, offset, shape, stride, False, OrderedDict()
    )


def checkpoint(
    state: Any, data: NDArray[Any] = VALUES, start: tuple[Any, ...] = (MAGIC, 1001, SYSTEM)
) -> bytes:
    file = io.BytesIO()
    for part in (*start, state, ["key"]):
        _Pickler(file, protocol=2).dump(part)
    file.write(struct.pack("<q", data.size) + data.tobytes())
    return file.getvalue()
