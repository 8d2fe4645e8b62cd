# SPDX-License-Identifier: Apache-2.0
"""Read the tensors of a PyTorch checkpoint in its legacy file format, without PyTorch.

A checkpoint is a chain of pickles, and a pickle can run any code: this reader admits tensors and
ordered dictionaries and refuses everything else. It does not read the newer zip format.
"""

from __future__ import annotations

import math
import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

# Source: torch/serialization.py, MAGIC_NUMBER and PROTOCOL_VERSION of _legacy_save.
_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001


class TorchFileError(Exception):
    """The file is not a legacy PyTorch checkpoint of plain tensors; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str  # names the raw data that follow the pickles
    dtype: np.dtype[Any]  # of one element
    count: int  # elements


@dataclass(frozen=True, slots=True)
class _StoredTensor:
    storage: _Storage
    offset: int  # elements before the first one
    shape: tuple[int, ...]
    stride: tuple[int, ...]  # elements from one index to the next, per dimension


def _rebuild_tensor(
    storage: object, offset: object, shape: object, stride: object, *_: object
) -> _StoredTensor:
    """Stand in for torch._utils._rebuild_tensor_v2; gradients and hooks are dropped."""
    if not (isinstance(storage, _Storage) and isinstance(shape, tuple)):
        raise TorchFileError("a tensor of the checkpoint has no storage or no shape")
    if not (isinstance(stride, tuple) and len(stride) == len(shape)):
        raise TorchFileError("a tensor of the checkpoint has a stride that does not fit its shape")
    if not all(type(number) is int and number >= 0 for number in (offset, *shape, *stride)):
        raise TorchFileError("a tensor of the checkpoint has an offset or a size that is no size")
    assert isinstance(offset, int)
    return _StoredTensor(storage, offset, shape, stride)


_ADMITTED: dict[tuple[str, str], Callable[..., Any] | np.dtype[Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch", "FloatStorage"): np.dtype("<f4"),
    ("torch", "LongStorage"): np.dtype("<i8"),
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: BinaryIO, storages: dict[str, _Storage]) -> None:
        super().__init__(file)
        self._storages = storages

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _ADMITTED[module_name, global_name]
        except KeyError:
            raise TorchFileError(
                f"the checkpoint asks for {module_name}.{global_name}, which is not a tensor"
            ) from None

    def persistent_load(self, pid: Any, /) -> _Storage:
        match pid:
            case ("storage", np.dtype() as dtype, str(key), str(), int(count), None):
                return self._storages.setdefault(key, _Storage(key, dtype, count))
        raise TorchFileError("the checkpoint holds a reference that is not a whole storage")


def read_torch_file(file: BinaryIO) -> dict[str, NDArray[Any]]:
    """Return the checkpoint's tensors by name, each contiguous in its own shape.

    Raises: TorchFileError: not such a file, damaged, or with anything but tensors in it.
    Source: torch/serialization.py, _legacy_load.
    """
    try:
        return _read(file)
    except (pickle.UnpicklingError, EOFError, struct.error, ValueError, TypeError) as error:
        raise TorchFileError(f"the checkpoint is damaged: {error}") from error
    except (LookupError, AttributeError, OverflowError, MemoryError) as error:
        raise TorchFileError(f"the checkpoint is damaged: {error!r}") from error


def _read(file: BinaryIO) -> dict[str, NDArray[Any]]:
    storages: dict[str, _Storage] = {}

    def load() -> Any:
        return _Unpickler(file, storages).load()

    if load() != _MAGIC or load() != _PROTOCOL:
        raise TorchFileError("this is not a checkpoint in PyTorch's legacy format")
    if not load()["little_endian"]:
        raise TorchFileError("the checkpoint was written on a big-endian machine")
    tensors, keys = load(), load()

    data: dict[str, NDArray[Any]] = {}
    for key in keys:
        storage = storages[key]
        (count,) = struct.unpack("<q", file.read(8))
        if count != storage.count:
            raise TorchFileError(f"storage {key} holds {count} elements instead of {storage.count}")
        size_bytes = count * storage.dtype.itemsize
        data[key] = np.frombuffer(file.read(size_bytes), storage.dtype, count)
    return {name: _strided(data[tensor.storage.key], tensor) for name, tensor in tensors.items()}


def _strided(data: NDArray[Any], tensor: _StoredTensor) -> NDArray[Any]:
    steps = zip(tensor.shape, tensor.stride, strict=True)
    last = tensor.offset + sum((size - 1) * stride for size, stride in steps)
    # The second: strides of 0 make any number of elements of one.
    if 0 in tensor.shape or last >= data.size or math.prod(tensor.shape) > data.size:
        raise TorchFileError("a tensor of the checkpoint reaches outside its storage")
    stride_bytes = [stride * data.itemsize for stride in tensor.stride]
    view = np.lib.stride_tricks.as_strided(data[tensor.offset :], tensor.shape, stride_bytes)
    return np.ascontiguousarray(view).reshape(tensor.shape)
