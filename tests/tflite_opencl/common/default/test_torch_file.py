# SPDX-License-Identifier: Apache-2.0
"""Reading PyTorch's legacy checkpoints: small ones made here, honest, damaged and hostile."""

from __future__ import annotations

import io
import os
import pickle
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.torch_files import (
    MAGIC,
    SYSTEM,
    VALUES,
    Call,
    Storage,
    checkpoint,
    fake_torch,
    stored_tensor,
)
from tflite_opencl.common.default.torch_file import TorchFileError, read_torch_file


@pytest.fixture(autouse=True)
def torch_names() -> Iterator[None]:
    with fake_torch():
        yield


def _read(content: bytes) -> Mapping[str, NDArray[Any]]:
    return read_torch_file(io.BytesIO(content))


def test_tensors_come_out_in_their_own_shape_and_order() -> None:
    tensors = _read(
        checkpoint(
            OrderedDict(
                plain=stored_tensor((2, 3, 4), (12, 4, 1)),
                turned=stored_tensor((4, 6), (1, 4)),
                part=stored_tensor((3,), (2,), offset=5),
                scalar=stored_tensor((), (), offset=7),
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
    state = OrderedDict(batches=stored_tensor((), (), kind="LongStorage", count=1))
    tensors = _read(checkpoint(state, np.array([2**40], "<i8")))
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
    content = checkpoint(OrderedDict())
    start = content.index(b"\x80\x02ccollections")
    with pytest.raises(TorchFileError, match=rf"asks for {module}\.{name}"):
        _read(content[:start] + hostile + content[start:])


def test_refused_call_did_not_run(tmp_path: Any) -> None:
    witness = tmp_path / "witness"
    hostile = pickle.dumps(Call(("os", "mkdir"), str(witness)), protocol=2)
    with pytest.raises(TorchFileError, match=rf"asks for {os.mkdir.__module__}\.mkdir"):
        _read(hostile)
    assert not witness.exists()


@pytest.mark.parametrize(
    "tensor",
    [
        stored_tensor((25,), (1,)),
        stored_tensor((24,), (1,), offset=1),
        stored_tensor((2, 2), (23, 2)),
        stored_tensor((24,), (-1,), offset=23),
        stored_tensor((-1,), (1,)),
        stored_tensor((0,), (1,)),
        stored_tensor((2,), (1,), offset=-1),
        stored_tensor((2,), (1, 1)),
        stored_tensor((2.0,), (1,)),
        stored_tensor((2**62, 4), (2**62, 1)),
        stored_tensor((2**14, 2**14), (0, 0)),
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
        "strides-of-0",
    ],
)
def test_tensor_outside_its_storage_is_refused(tensor: Call) -> None:
    with pytest.raises(TorchFileError):
        _read(checkpoint(OrderedDict(bad=tensor)))


@pytest.mark.parametrize(
    "start",
    [(MAGIC + 1, 1001, SYSTEM), (MAGIC, 1002, SYSTEM), (MAGIC, 1001, {"little_endian": False})],
    ids=["other-magic", "other-protocol", "big-endian"],
)
def test_other_formats_are_refused(start: tuple[Any, ...]) -> None:
    with pytest.raises(TorchFileError):
        _read(checkpoint(OrderedDict(), start=start))


@pytest.mark.parametrize(
    "state",
    [["a list"], OrderedDict(number=1), OrderedDict(bare=Storage("key", "FloatStorage", 24))],
    ids=["a-list", "a-number", "a-bare-storage"],
)
def test_checkpoint_of_other_things_is_refused(state: Any) -> None:
    with pytest.raises(TorchFileError):
        _read(checkpoint(state))


def test_storage_of_another_length_is_refused() -> None:
    with pytest.raises(TorchFileError, match="holds 12 elements instead of 24"):
        _read(checkpoint(OrderedDict(plain=stored_tensor((24,), (1,))), VALUES[:12]))


def test_every_truncation_is_refused() -> None:
    content = checkpoint(OrderedDict(plain=stored_tensor((24,), (1,))))
    for length in range(len(content)):
        with pytest.raises(TorchFileError):
            _read(content[:length])


@pytest.mark.parametrize("content", [b"PK\x03\x04", b"GIF89a", b"\n" * 40], ids=repr)
def test_foreign_files_are_refused(content: bytes) -> None:
    with pytest.raises(TorchFileError):
        _read(content)
