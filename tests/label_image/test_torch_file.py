# SPDX-License-Identifier: Apache-2.0
"""Reading PyTorch's legacy checkpoints: small ones made here, honest, damaged and hostile."""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
from collections import OrderedDict
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from label_image.torch_file import TorchFileError, read_torch_file

MAGIC = 0x1950A86A20F9469CFC6C
SYSTEM = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}
VALUES = np.arange(24, dtype="<f4")


class _Storage:
    """Pickled as torch does: by a persistent id, its data elsewhere in the file."""

    def __init__(self, key: str, kind: str, count: int) -> None:
        self.id = ("storage", kind, key, "cpu", count, None)


class _Call:
    """Pickled as a call of `function`, given as (module, name)."""

    def __init__(self, function: tuple[str, str], *arguments: Any) -> None:
        self.function = function
        self.arguments = arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr(sys.modules[self.function[0]], self.function[1]), self.arguments


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        if not isinstance(obj, _Storage):
            return None
        kind, name, *rest = obj.id
        return (kind, getattr(sys.modules["torch"], str(name)), *rest)


@pytest.fixture(autouse=True)
def fake_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give pickle the names that a checkpoint refers to; nothing of them is ever called."""
    for module_name, names in {
        "torch": ("FloatStorage", "LongStorage", "HalfStorage"),
        "torch._utils": ("_rebuild_tensor_v2",),
    }.items():
        module = ModuleType(module_name)
        for name in names:
            setattr(module, name, type(name, (), {"__module__": module_name}))
        monkeypatch.setitem(sys.modules, module_name, module)


def _tensor(
    shape: tuple[Any, ...],
    stride: tuple[Any, ...],
    offset: Any = 0,
    kind: str = "FloatStorage",
    count: Any = 24,
) -> _Call:
    storage = _Storage("key", kind, count)
    return _Call(
        ("torch._utils", "_rebuild_tensor_v2"), storage, offset, shape, stride, False, OrderedDict()
    )


def _checkpoint(
    state: Any, data: NDArray[Any] = VALUES, start: tuple[Any, ...] = (MAGIC, 1001, SYSTEM)
) -> bytes:
    file = io.BytesIO()
    for part in (*start, state, ["key"]):
        _Pickler(file, protocol=2).dump(part)
    file.write(struct.pack("<q", data.size) + data.tobytes())
    return file.getvalue()


def _read(content: bytes) -> Mapping[str, NDArray[Any]]:
    return read_torch_file(io.BytesIO(content))


def test_tensors_come_out_in_their_own_shape_and_order() -> None:
    tensors = _read(
        _checkpoint(
            OrderedDict(
                plain=_tensor((2, 3, 4), (12, 4, 1)),
                turned=_tensor((4, 6), (1, 4)),
                part=_tensor((3,), (2,), offset=5),
                scalar=_tensor((), (), offset=7),
            )
        )
    )
    np.testing.assert_array_equal(tensors["plain"], VALUES.reshape(2, 3, 4))
    np.testing.assert_array_equal(tensors["turned"], VALUES.reshape(6, 4).T)
    np.testing.assert_array_equal(tensors["part"], VALUES[5:10:2])
    assert tensors["scalar"].shape == ()
    assert tensors["scalar"] == VALUES[7]
    assert all(tensor.flags.c_contiguous for tensor in tensors.values())


def test_whole_numbers_are_read() -> None:
    state = OrderedDict(batches=_tensor((), (), kind="LongStorage", count=1))
    tensors = _read(_checkpoint(state, np.array([2**40], "<i8")))
    assert tensors["batches"] == 2**40


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("subprocess", "Popen"),
        ("numpy", "frombuffer"),
        ("pickle", "loads"),
        ("torch", "HalfStorage"),
    ],
)
def test_anything_but_tensors_is_refused(module: str, name: str) -> None:
    # Protocol 0 spells a global as text, so it needs no real object.
    hostile = f"c{module}\n{name}\n(Vecho hostile\ntR.".encode()
    content = _checkpoint(OrderedDict())
    start = content.index(b"\x80\x02ccollections")
    with pytest.raises(TorchFileError, match=rf"asks for {module}\.{name}"):
        _read(content[:start] + hostile + content[start:])


def test_refused_call_did_not_run(tmp_path: Any) -> None:
    witness = tmp_path / "witness"
    hostile = pickle.dumps(_Call(("os", "mkdir"), str(witness)), protocol=2)
    with pytest.raises(TorchFileError, match=rf"asks for {os.mkdir.__module__}\.mkdir"):
        _read(hostile)
    assert not witness.exists()


@pytest.mark.parametrize(
    "tensor",
    [
        _tensor((25,), (1,)),
        _tensor((24,), (1,), offset=1),
        _tensor((2, 2), (23, 2)),
        _tensor((24,), (-1,), offset=23),
        _tensor((-1,), (1,)),
        _tensor((0,), (1,)),
        _tensor((2,), (1,), offset=-1),
        _tensor((2,), (1, 1)),
        _tensor((2.0,), (1,)),
        _tensor((2**62, 4), (2**62, 1)),
    ],
    ids=[
        "too-long",
        "offset-too-far",
        "stride-too-far",
        "negative-stride",
        "negative-size",
        "no-elements",
        "negative-offset",
        "stride-per-no-dimension",
        "size-no-whole-number",
        "huge",
    ],
)
def test_tensor_outside_its_storage_is_refused(tensor: _Call) -> None:
    with pytest.raises(TorchFileError):
        _read(_checkpoint(OrderedDict(bad=tensor)))


@pytest.mark.parametrize(
    "start",
    [(MAGIC + 1, 1001, SYSTEM), (MAGIC, 1002, SYSTEM), (MAGIC, 1001, {"little_endian": False})],
    ids=["other-magic", "other-protocol", "big-endian"],
)
def test_other_formats_are_refused(start: tuple[Any, ...]) -> None:
    with pytest.raises(TorchFileError):
        _read(_checkpoint(OrderedDict(), start=start))


@pytest.mark.parametrize(
    "state",
    [["a list"], OrderedDict(number=1), OrderedDict(bare=_Storage("key", "FloatStorage", 24))],
    ids=["a-list", "a-number", "a-bare-storage"],
)
def test_checkpoint_of_other_things_is_refused(state: Any) -> None:
    with pytest.raises(TorchFileError):
        _read(_checkpoint(state))


def test_storage_of_another_length_is_refused() -> None:
    with pytest.raises(TorchFileError, match="holds 12 elements instead of 24"):
        _read(_checkpoint(OrderedDict(plain=_tensor((24,), (1,))), VALUES[:12]))


def test_every_truncation_is_refused() -> None:
    content = _checkpoint(OrderedDict(plain=_tensor((24,), (1,))))
    for length in range(len(content)):
        with pytest.raises(TorchFileError):
            _read(content[:length])


@pytest.mark.parametrize("content", [b"PK\x03\x04", b"GIF89a", b"\n" * 40], ids=repr)
def test_foreign_files_are_refused(content: bytes) -> None:
    with pytest.raises(TorchFileError):
        _read(content)
