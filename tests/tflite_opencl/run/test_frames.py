# SPDX-License-Identifier: Apache-2.0
"""Files as inputs: types, WAV files of every sample width, frames, unreadable files."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate.inspect import Graph
from tests.support.model import graph_of, op, t
from tflite_opencl.console.errors import RunError
from tflite_opencl.run.frames import frames_of


def graph(shape: tuple[int, ...], dtype: str = "float32", *numbers: Any) -> Graph:
    source = t(shape, dtype, *numbers)
    return graph_of([op("NEG", [source], [t(shape, dtype, *numbers)])])


def read(graph_: Graph, path: Path, are_cut: bool = False) -> Any:
    return frames_of(graph_, {0: ("--input 0", str(path))}, are_cut)


def sound(path: Path, samples: Any, wide: int, channels: int = 1) -> Path:
    """Write a WAV file with samples of `wide` bytes."""
    data = b"".join(int(x).to_bytes(wide, "little", signed=wide > 1) for x in np.ravel(samples))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(wide)
        file.setframerate(16000)
        file.writeframes(data)
    return path


@pytest.mark.parametrize(
    ("wide", "samples"),
    [
        (1, [0, 64, 128, 192]),
        (2, [-(2**15), -(2**14), 0, 2**14]),
        (3, [-(2**23), -(2**22), 0, 2**22]),
        (4, [-(2**31), -(2**30), 0, 2**30]),
    ],
)
def test_samples_are_scaled_to_minus_1_to_1(wide: int, samples: list[int], tmp_path: Path) -> None:
    path = sound(tmp_path / "a.wav", samples, wide)
    (values,) = read(graph((4,)), path).inputs[0]
    np.testing.assert_array_equal(values, [-1, -0.5, 0, 0.5])
    (values,) = read(graph((4,), "int8", 1 / 64, 3), path).inputs[0]
    np.testing.assert_array_equal(values, [-61, -29, 3, 35])
    (values,) = read(graph((4,), "int16"), path).inputs[0]
    np.testing.assert_array_equal(values, [-(2**15), -(2**14), 0, 2**14])


def test_channels_are_averaged(tmp_path: Path) -> None:
    path = sound(tmp_path / "a.wav", [[0, 2**14], [2**14, 2**14]], 2, channels=2)
    (values,) = read(graph((2,)), path).inputs[0]
    np.testing.assert_array_equal(values, [0.25, 0.5])


def test_last_frame_is_padded_and_single_frame_repeats(tmp_path: Path) -> None:
    np.save(tmp_path / "long.npy", np.arange(5, dtype=np.float32))
    np.save(tmp_path / "short.npy", np.float32([8, 9]))
    a, b = t((1, 2)), t((1, 2))
    both = graph_of([op("ADD", [a, b], [t((1, 2))])], [a, b])
    files = {0: ("", str(tmp_path / "long.npy")), 1: ("", str(tmp_path / "short.npy"))}
    frames = frames_of(both, files, are_cut=True)
    assert (frames.count, frames.padded) == (3, 1)
    last = [values.tolist() for values in frames.of(2, both)]
    assert last == [[[4, 0]], [[8, 9]]]


def test_inputs_without_file_are_zeros() -> None:
    both = graph((2, 3))
    frames = frames_of(both, {}, are_cut=True)
    (values,) = frames.of(0, both)
    assert (frames.count, values.tolist()) == (1, np.zeros((2, 3)).tolist())


def test_different_lengths_are_refused(tmp_path: Path) -> None:
    files = {}
    for number, length in enumerate((4, 6)):
        np.save(tmp_path / f"{number}.npy", np.zeros(length, np.float32))
        files[number] = ("", str(tmp_path / f"{number}.npy"))
    a, b = t((2,)), t((2,))
    both = graph_of([op("ADD", [a, b], [t((2,))])], [a, b])
    with pytest.raises(RunError, match=r"^the files have 2 and 3 frames: one length is needed$"):
        frames_of(both, files, are_cut=True)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.npy", b"nonsense", "a.npy is no .npy file that can be read: "),
        ("a.wav", b"nonsense", "a.wav is no .wav file that can be read: "),
        ("a.txt", b"1 2 x", "a.txt is no .txt file that can be read: "),
        ("a.txt", b"1 2 300", "a.txt is no .txt file that can be read: 300 is no int8"),
        ("a.txt", b"1 2", "a.txt holds 2 values, and this input takes 3 (3)"),
        ("a.txt", b"1 2 3 4", "(3); --frames runs over all of them"),
        ("a", b"", "a is no .npy, .wav or .txt file"),
    ],
)
def test_unreadable_file_is_one_line(
    name: str, content: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(RunError) as caught:
        read(graph((3,), "int8", 0.5, 0), path)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_array_is_converted_to_input_type(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(RunError, match=r"holds float64, and this input takes int8$"):
        read(graph((3,), "int8", 0.5, 0), tmp_path / "a.npy")
