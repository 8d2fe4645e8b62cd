# SPDX-License-Identifier: Apache-2.0
"""Values of inputs: the picture, a .npy file or zeros, and files that do not fit."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegate.inspect import Graph, Tensor
from tests.support.model import graph_of, op, t
from tflite_opencl.console.errors import RunError, UsageError
from tflite_opencl.harness.feeds import Feeds, feeds_of, main_values, warn_of_zeros


def graph(*inputs: Tensor) -> Graph:
    return graph_of([op("CUSTOM", inputs, [t((1, 3))], is_custom=True)])


PICTURE = t((1, 4, 4, 3), "uint8", 0.5, name="picture")
SOUND = t((1, 6), "float32", name="sound")
MASK = t((1, 4, 4, 1), "int8", 0.5, name="mask")


@pytest.fixture
def sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with values for SOUND in sound.npy."""
    monkeypatch.chdir(tmp_path)
    np.save("sound.npy", np.arange(6, dtype=np.float32).reshape(1, 6))
    return tmp_path / "sound.npy"


PICTURES = [
    ("the-first", [PICTURE, SOUND], 0),
    ("the-only-one", [SOUND, PICTURE], 1),
    ("the-first-of-two", [PICTURE, MASK], 0),
    ("the-first-that-can", [SOUND, MASK, PICTURE], 1),
    ("none", [SOUND], None),
    ("float", [t((1, 4, 4, 3))], 0),
    ("int16", [t((1, 4, 4, 3), "int16", 2**-15)], 0),
    ("int16-without-a-scale", [t((1, 4, 4, 3), "int16")], None),
    ("int32", [t((1, 4, 4, 3), "int32")], None),
    ("two-channels", [t((1, 4, 4, 2), "uint8")], None),
    ("two-pictures-at-once", [t((2, 4, 4, 3), "uint8")], 0),
    ("with-alpha", [t((1, 4, 4, 4), "uint8")], 0),
    ("no-batch", [t((4, 4, 3), "uint8")], 0),
    ("planar", [t((1, 3, 4, 4))], 0),
    ("without-channels", [t((1, 4, 4))], None),
]


@pytest.mark.parametrize(
    ("inputs", "number"), [case[1:] for case in PICTURES], ids=[case[0] for case in PICTURES]
)
def test_picture_is_for_first_suitable_input(inputs: list[Tensor], number: int | None) -> None:
    assert feeds_of(graph(*inputs), ()) == Feeds(number, {})


@pytest.mark.parametrize("shape", [(1, 4, 4), (4, 4)])
def test_input_without_channels_takes_picture(shape: tuple[int, ...]) -> None:
    one = graph(t(shape, "uint8"))
    assert feeds_of(one, ()) == Feeds(None, {})
    assert feeds_of(one, (), is_image_asked=True) == Feeds(0, {})


@pytest.mark.parametrize("name", ["sound", "1"])
def test_file_is_for_named_or_numbered_input(sound: Path, name: str) -> None:
    feeds = feeds_of(graph(PICTURE, SOUND), [(name, "sound.npy")])
    assert feeds.picture == 0
    ((number, values),) = feeds.others
    assert (number, values.dtype, values.tolist()) == (1, np.float32, [[0, 1, 2, 3, 4, 5]])


def test_numeric_name_precedes_number(sound: Path) -> None:
    tensors = t((1, 6), "float32", name="a"), t((1, 6), "float32", name="0")
    assert list(feeds_of(graph(*tensors), [("0", "sound.npy")]).given) == [1]


def test_unnamed_input_has_number(sound: Path) -> None:
    assert list(feeds_of(graph(t((1, 6))), [("0", "sound.npy")]).given) == [0]


def test_file_replaces_picture(tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", np.full((1, 4, 4, 3), 7, np.uint8))
    two = graph(PICTURE, t((1, 4, 4, 3), "uint8", 0.5, name="second"))
    feeds = feeds_of(two, [("picture", str(tmp_path / "p.npy"))])
    assert feeds.picture == 1
    assert [number for number, _ in feeds.others] == [0]


def test_first_input_is_main_without_picture(sound: Path) -> None:
    both = graph(SOUND, t((2,), "int64", name="n"))
    feeds = feeds_of(both, [("sound", "sound.npy")])
    assert (feeds.picture, feeds.main, feeds.others) == (None, 0, ())
    assert main_values(both, feeds).tolist() == [[0, 1, 2, 3, 4, 5]]
    zeros = main_values(both, feeds_of(both, ()))
    assert (zeros.dtype, zeros.tolist()) == (np.float32, [[0] * 6])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "float32", "bool"])
def test_numeric_types(tmp_path: Path, dtype: str) -> None:
    values = np.array([[0, 1, 1]], dtype)
    np.save(tmp_path / "a.npy", values)
    feeds = feeds_of(graph(t((1, 3), dtype)), [("0", str(tmp_path / "a.npy"))])
    assert np.array_equal(feeds.given[0], values)
    assert feeds.given[0].dtype == values.dtype


@pytest.mark.parametrize("shape", [(), (1,), (3, 2), (2, 0)])
def test_shapes(tmp_path: Path, shape: tuple[int, ...]) -> None:
    values = np.zeros(shape, np.int32)
    np.save(tmp_path / "a.npy", values)
    feeds = feeds_of(graph(PICTURE, t(shape, "int32")), [("1", str(tmp_path / "a.npy"))])
    assert feeds.given[1].shape == shape


def test_memory_and_byte_order(tmp_path: Path) -> None:
    values = np.asfortranarray(np.arange(6, dtype=">i4").reshape(2, 3))
    np.save(tmp_path / "a.npy", values)
    given = feeds_of(graph(t((2, 3), "int32")), [("0", str(tmp_path / "a.npy"))]).given[0]
    assert given.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert (given.dtype, given.flags.c_contiguous) == (np.dtype("int32"), True)


class Bomb:
    """An object that must not be unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, ("exploded",)


def header(text: bytes, version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text


def bomb(path: Path) -> None:
    np.save(path, np.array([Bomb()], dtype=object), allow_pickle=True)


def bare_bomb(path: Path) -> None:
    path.write_bytes(pickle.dumps(Bomb()))


def archive(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, np.zeros(3))


def truncated(path: Path) -> None:
    np.save(path, np.zeros((1, 6), np.float32))
    path.write_bytes(path.read_bytes()[:-1])


def giant(path: Path) -> None:
    path.write_bytes(header(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 9999999999)}"))


def version_3(path: Path) -> None:
    with pytest.warns(UserWarning, match="format 3.0"):
        np.save(path, np.zeros(1, [("\U0001f600", "f4")]))


def save(values: Any) -> Callable[[Path], None]:
    return lambda path: np.save(path, values)


def bytes_of(data: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(data) and None


NO_NPY = "is no .npy file, as np.save writes it"
OBJECTS = "holds pickled Python objects, which are never loaded"
DAMAGED = "is a damaged .npy file"
VERSIONS = "only 1.0 and 2.0 are read"
FITS = "and this input takes 1x6 float32"
BAD_FILES: list[tuple[str, Callable[[Path], Any], str]] = [
    ("missing", lambda path: None, ": there is no file a.npy"),
    ("a-folder", lambda path: path.mkdir(), ": cannot read a.npy: Is a directory"),
    ("empty", bytes_of(b""), f": a.npy {NO_NPY}"),
    ("text", bytes_of(b"1 2 3"), f": a.npy {NO_NPY}"),
    ("archive", archive, f": a.npy {NO_NPY}"),
    ("pickle", bare_bomb, f": a.npy {NO_NPY}"),
    ("pickled-npy", bomb, f": a.npy {OBJECTS}"),
    ("magic-alone", bytes_of(b"\x93NUMPY"), f": a.npy {DAMAGED}"),
    ("no-header", bytes_of(b"\x93NUMPY\x01\x00\xff\xff{"), f": a.npy {DAMAGED}"),
    ("broken-header", bytes_of(header(b"{'descr': (((")), f": a.npy {DAMAGED}"),
    ("other-header", bytes_of(header(b"[1, 2, 3]")), f": a.npy {DAMAGED}"),
    (
        "version-9",
        bytes_of(header(b"{}", b"\x09\x00")),
        f": a.npy is a .npy file of version 9.0: {VERSIONS}",
    ),
    ("version-3", version_3, f": a.npy is a .npy file of version 3.0: {VERSIONS}"),
    ("structured", save(np.zeros(1, [("x", "f4")])), f": a.npy holds 1 [('x', '<f4')], {FITS}"),
    ("truncated", truncated, ": a.npy is truncated"),
    ("giant", giant, f": a.npy holds 1x9999999999 float32, {FITS}"),
    ("shape", save(np.zeros((6,), np.float32)), f": a.npy holds 6 float32, {FITS}"),
    ("scalar", save(np.float32(1)), f": a.npy holds scalar float32, {FITS}"),
    ("type", save(np.zeros((1, 6))), f": a.npy holds 1x6 float64, {FITS}"),
    ("text-values", save(np.array([["a"] * 6])), f": a.npy holds 1x6 <U1, {FITS}"),
]


@pytest.mark.parametrize(
    ("make", "text"), [case[1:] for case in BAD_FILES], ids=[case[0] for case in BAD_FILES]
)
def test_unsuitable_file_is_one_line(sound: Path, make: Callable[[Path], Any], text: str) -> None:
    make(sound.with_name("a.npy"))
    with pytest.raises(RunError) as caught:
        feeds_of(graph(SOUND), [("sound", "a.npy")])
    assert str(caught.value) == f"--input sound{text}"
    assert not sound.with_name("exploded").exists()


BAD_NAMES = [
    (
        "unknown",
        ["nosuch"],
        "--input: there is no input nosuch; the model has the inputs picture, sound",
    ),
    ("misspelt", ["suond"], "--input: there is no input suond; did you mean sound?"),
    (
        "number-too-large",
        ["2"],
        "--input: there is no input 2; the model has the inputs picture, sound",
    ),
    ("negative", ["-1"], "--input: there is no input -1; the model has the inputs picture, sound"),
    ("twice", ["sound", "sound"], "--input sound: this input is given twice"),
    ("name-and-number", ["sound", "1"], "--input 1: this input is given twice"),
]


@pytest.mark.parametrize(
    ("names", "text"), [case[1:] for case in BAD_NAMES], ids=[case[0] for case in BAD_NAMES]
)
def test_unknown_input_is_one_line(sound: Path, names: list[str], text: str) -> None:
    kind = UsageError if "there is no input" in text else RunError
    with pytest.raises(kind) as caught:
        feeds_of(graph(PICTURE, SOUND), [(name, "sound.npy") for name in names])
    assert str(caught.value) == text


@pytest.mark.parametrize(("dtype", "number"), [("string", 5), ("resource", 14), ("variant", 15)])
def test_non_numeric_input_is_refused(dtype: str, number: int) -> None:
    with pytest.raises(RunError, match=f"cannot handle input type {number} yet"):
        feeds_of(graph(PICTURE, t((1,), dtype)), ())


def test_dynamic_input_needs_file(sound: Path) -> None:
    open_sound = graph(t((1, 6), "float32", shape_signature=(-1, -1)))
    with pytest.raises(RunError, match=r"the model's input 1 x \? has no fixed size"):
        feeds_of(open_sound, ())
    assert feeds_of(open_sound, [("0", "sound.npy")]).picture is None


ZEROS = [
    ("picture", [PICTURE], []),
    (
        "picture-first",
        [PICTURE, SOUND],
        ["the model has 2 inputs: the picture goes to the first, the others are zeros"],
    ),
    (
        "picture-second",
        [SOUND, PICTURE],
        [
            "the picture goes to picture, zeros go to sound (1x6 float32): "
            "--input NAME=FILE.npy gives other values"
        ],
    ),
    (
        "no-picture",
        [SOUND, t((2,), "int64", name="n")],
        ["zeros go to sound (1x6 float32), n (2 int64): --input NAME=FILE.npy gives other values"],
    ),
]


@pytest.mark.parametrize(
    ("inputs", "lines"), [case[1:] for case in ZEROS], ids=[case[0] for case in ZEROS]
)
def test_inputs_of_zeros_are_named(
    inputs: list[Tensor], lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    model = graph(*inputs)
    warn_of_zeros(model, feeds_of(model, ()))
    assert caplog.messages == lines


def test_unnamed_input_is_called_by_number(caplog: pytest.LogCaptureFixture) -> None:
    nameless = replace(SOUND, name="")
    model = replace(graph(nameless), inputs=(nameless,))
    warn_of_zeros(model, feeds_of(model, ()))
    assert caplog.messages[0].startswith("zeros go to input 0 (1x6 float32)")


def test_no_warning_for_inputs_with_values(sound: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = graph(PICTURE, SOUND)
    warn_of_zeros(model, feeds_of(model, [("sound", "sound.npy")]))
    assert caplog.messages == []
