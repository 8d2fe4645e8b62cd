# SPDX-License-Identifier: Apache-2.0
"""Input files, arrays, sound and numbers, used whole or split into frames.

A file holds one input, or one frame for each run.
"""

from __future__ import annotations

import math
import wave
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegate.inspect import Graph, Tensor
from tflite_opencl.console.errors import RunError, one_line
from tflite_opencl.harness.feeds import scale_of
from tflite_opencl.models.build import sizes

Array = NDArray[Any]
_FULL_SCALE = {1: 2**7, 2: 2**15, 3: 2**23, 4: 2**31}  # of samples with this many bytes


@dataclass(frozen=True, slots=True)
class RunInputs:
    """The inputs of each run.

    Attributes:
        count: number of runs.
        padded: number of zeros appended to a partial last frame.
    """

    inputs: Mapping[int, Array]  # (frames, ...) by input index; a single frame is used every run
    count: int
    padded: int

    def of(self, run: int, graph: Graph) -> list[Array]:
        """Return the inputs of a run; inputs without a file are zeros."""
        made = [np.zeros(tensor.shape, tensor.dtype) for tensor in graph.inputs]
        for number, frames in self.inputs.items():
            made[number] = frames[run if len(frames) > 1 else 0]
        return made


def frames_of(graph: Graph, files: Mapping[int, tuple[str, str]], are_cut: bool) -> RunInputs:
    """Return the inputs' frames; `files`: flag and path by input index; `are_cut`: split files.

    Raises: RunError: a file cannot be read, or has a wrong size; lengths differ.
    """
    found: dict[int, Array] = {}
    padded = 0
    for number, (where, path) in files.items():
        tensor = graph.inputs[number]
        values = _values(where, path, tensor)
        elements = max(1, math.prod(tensor.shape))
        count = max(1, -(-values.size // elements)) if are_cut else 1
        lacking = count * elements - values.size
        if lacking and not are_cut:
            more = values.size > elements
            raise RunError(
                f"{where}: {path} holds {values.size} values, and this input takes {elements} "
                f"({sizes(tensor.shape)})" + ("; --frames runs over all of them" if more else "")
            )
        padded = max(padded, lacking)
        whole = np.concatenate([values.ravel(), np.zeros(lacking, values.dtype)])
        found[number] = whole.reshape(count, *tensor.shape)
    lengths = sorted({len(frames) for frames in found.values()} - {1})
    if len(lengths) > 1:
        raise RunError(
            f"the files have {lengths[0]} and {lengths[-1]} frames: one length is needed"
        )
    return RunInputs(found, max(lengths, default=1), padded)


def _values(where: str, path: str, tensor: Tensor) -> Array:
    """Return a file's values in the input's type; sound and floats are quantised if it is."""
    kind = path.rpartition(".")[2].lower()
    read = {"npy": _array, "wav": _sound, "txt": _numbers}.get(kind)
    if read is None:
        raise RunError(f"{where}: {path} is no .npy, .wav or .txt file")
    try:
        values = read(path, tensor)
    except FileNotFoundError as error:
        raise RunError(f"{where}: there is no file {path}") from error
    except OSError as error:
        raise RunError(f"{where}: cannot read {path}: {error.strerror or error}") from error
    except Exception as error:  # numpy and wave raise many types on damaged files
        raise RunError(
            f"{where}: {path} is no .{kind} file that can be read: {one_line(error)}"
        ) from error
    if values.dtype != tensor.dtype:
        raise RunError(f"{where}: {path} holds {values.dtype}, and this input takes {tensor.dtype}")
    return values


def _array(path: str, tensor: Tensor) -> Array:
    found = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(found, np.ndarray):
        raise TypeError("it is an archive of several arrays")
    return np.asarray(found, found.dtype.newbyteorder("="))


def _numbers(path: str, tensor: Tensor) -> Array:
    """Return numbers separated by spaces, commas or line ends, in the input's own type."""
    with open(path, encoding="utf-8") as file:
        words = file.read().replace(",", " ").split()
    if np.dtype(tensor.dtype).kind in "iu":
        limits = np.iinfo(tensor.dtype)
        whole = [int(word) for word in words]
        for number in whole:
            if not limits.min <= number <= limits.max:
                raise ValueError(f"{number} is no {tensor.dtype}")
        return np.array(whole, tensor.dtype)
    return np.array([float(word) for word in words]).astype(tensor.dtype)


def _sound(path: str, tensor: Tensor) -> Array:
    """Return samples from -1 to 1, averaged over channels.

    A quantised input gets them at its scale. One of int16 without a scale gets 16-bit samples.
    """
    with wave.open(path, "rb") as file:
        wide, channels = file.getsampwidth(), file.getnchannels()
        data = file.readframes(file.getnframes())
    if wide == 3:  # numpy has no 24-bit integers: use the upper bytes of 32-bit ones
        bytes_of = np.frombuffer(data, np.uint8).reshape(-1, 3)
        zeros = np.zeros((len(bytes_of), 1), np.uint8)
        samples = np.hstack([zeros, bytes_of]).reshape(-1).view("<i4") >> 8
    else:
        samples = np.frombuffer(data, {1: "u1", 2: "<i2", 4: "<i4"}[wide]).astype(np.int64)
    if wide == 1:
        samples = samples - 128  # 8-bit samples are unsigned
    size = len(samples) // channels * channels
    mean = samples[:size].reshape(-1, channels).mean(axis=1) / _FULL_SCALE[wide]
    return _stored(mean, tensor)


def _stored(values: NDArray[np.float64], tensor: Tensor) -> Array:
    dtype = np.dtype(tensor.dtype)
    if dtype.kind == "f":
        return values.astype(dtype)
    if dtype.kind not in "iu":
        raise TypeError(f"{dtype} is no type of sound")
    limits = np.iinfo(dtype)
    scale, zero_point = scale_of(tensor)
    steps = values / scale + zero_point if scale else values * (int(limits.max) + 1)
    return np.clip(np.rint(steps), limits.min, limits.max).astype(dtype)
