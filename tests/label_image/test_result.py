# SPDX-License-Identifier: Apache-2.0
"""What outputs say of a picture, as lines, as a row and for JSON; what is shown of them; files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from delegate.inspect import Graph
from label_image.compare import Distances
from label_image.decode_outputs import Meaning
from label_image.heads.view import View
from label_image.result import (
    OutputSummary,
    Result,
    file_names,
    picture_folder,
    safe_name,
    write_outputs,
)
from tests.support.model import graph_of, op, t
from tflite_opencl.oracle.difference import Difference


def described(
    values: ArrayLike, dtype: str, *quantisation: Any, name: str = "out"
) -> OutputSummary:
    output = np.asarray(values, dtype)
    return OutputSummary(0, output, t(output.shape, dtype, *quantisation, name=name))


LINES = [
    (
        "quantised",
        described([[5, 255, 3]], "uint8", 0.5, 3),
        "output(0) out: 1x3 uint8, 3 to 255 (dequantised 0 to 126: scale 0.5, zero point 3)",
        "output(0) values: 5, 255, 3",
    ),
    (
        "per-channel",
        described([[5, 7]], "int8", [0.5, 0.25]),
        "output(0) out: 1x2 int8, 5 to 7",
        "output(0) values: 5, 7",
    ),
    (
        "many-values",
        described(np.arange(12).reshape(3, 4), "int64"),
        "output(0) out: 3x4 int64, 0 to 11",
        "output(0) values: 0, 1, 2, 3, 4, 5, 6, 7, ...",
    ),
    (
        "floats",
        described([0.1, -2.5e-9], "float32"),
        "output(0) out: 2 float32, -2.5e-09 to 0.1",
        "output(0) values: 0.1, -2.5e-09",
    ),
    (
        "not-finite",
        described([np.nan, 1, np.inf], "float32"),
        "output(0) out: 3 float32, 1 to 1, 2 of 3 values not finite",
        "output(0) values: nan, 1, inf",
    ),
    (
        "nothing-finite",
        described([np.nan], "float32"),
        "output(0) out: 1 float32, 1 of 1 values not finite",
        "output(0) values: nan",
    ),
    (
        "truth-values",
        described([True, False], "bool"),
        "output(0) out: 2 bool, false to true",
        "output(0) values: true, false",
    ),
    ("scalar", described(7, "int32"), "output(0) out: scalar int32, 7 to 7", "output(0) values: 7"),
    (
        "empty",
        described(np.zeros((0, 4)), "float32"),
        "output(0) out: 0x4 float32",
        "output(0) values: none",
    ),
    (
        "without-a-name",
        described([1], "int32", name=""),
        "output(0): 1 int32, 1 to 1",
        "output(0) values: 1",
    ),
]


@pytest.mark.parametrize(
    ("found", "facts", "values"), [case[1:] for case in LINES], ids=[case[0] for case in LINES]
)
def test_an_output_is_two_lines(found: OutputSummary, facts: str, values: str) -> None:
    assert found.lines == [facts, values]


def test_json_holds_the_same() -> None:
    assert described([[5, 255, 3]], "uint8", 0.5, 3).entry == {
        "name": "out",
        "shape": [1, 3],
        "dtype": "uint8",
        "min": 3,
        "max": 255,
        "scale": 0.5,
        "zero_point": 3,
        "min_dequantised": 0.0,
        "max_dequantised": 126.0,
        "first_values": [5, 255, 3],
    }


def test_json_has_null_where_a_number_is_not_finite() -> None:
    entry = described([np.nan, 1.5, -np.inf], "float32").entry
    assert (entry["min"], entry["max"], entry["not_finite"]) == (1.5, 1.5, 2)
    assert entry["first_values"] == [None, 1.5, None]
    json.dumps(entry, allow_nan=False)


def test_json_of_the_largest_integers_and_of_truth_values_is_exact() -> None:
    ends = np.iinfo(np.int64)
    assert described([ends.min, ends.max], "int64").entry["first_values"] == [ends.min, ends.max]
    assert described([True], "bool").entry["max"] is True


NAMES = [
    ("plain", ["Identity"], ["Identity.npy"]),
    ("signs", ["StatefulPartitionedCall:0"], ["StatefulPartitionedCall_0.npy"]),
    ("a-path", ["../../etc/passwd"], ["_.._etc_passwd.npy"]),
    ("hidden", [".out"], ["out.npy"]),
    ("no-letters", ["äöü", "..", ""], ["_.npy", "output.npy", "output_2.npy"]),
    ("without-a-name", ["", ""], ["output_0.npy", "output_1.npy"]),
    ("equal", ["a", "a", "a_2"], ["a.npy", "a_2.npy", "a_2_2.npy"]),
    ("equal-but-for-case", ["Out", "out"], ["Out.npy", "out_2.npy"]),
    ("long", ["x" * 300], ["x" * 100 + ".npy"]),
]


@pytest.mark.parametrize(
    ("names", "files"), [case[1:] for case in NAMES], ids=[case[0] for case in NAMES]
)
def test_files_are_named_after_tensors(names: list[str], files: list[str]) -> None:
    assert file_names([t((1,), name=name) for name in names]) == files


def test_pictures_of_one_name_have_folders_of_their_own() -> None:
    assert picture_folder("o", 1, "a/b c.jpg") == os.path.join("o", "000001_b_c.jpg")
    assert picture_folder("o", 12, "d/b c.jpg") == os.path.join("o", "000012_b_c.jpg")
    assert safe_name("a\nb\0c") == "a_b_c"


def test_outputs_are_written_as_they_are_into_a_new_folder(tmp_path: Path) -> None:
    arrays = [
        np.array([[1, 2]], np.int8),
        np.array(True),
        np.array([2**62], np.int64),
        np.zeros((0, 3), np.float32),
    ]
    tensors = [t(array.shape, str(array.dtype), name=f"o{n}") for n, array in enumerate(arrays)]
    folder = tmp_path / "new" / "deep"
    names = write_outputs(str(folder), arrays, tensors)
    assert names == ["o0.npy", "o1.npy", "o2.npy", "o3.npy"] == sorted(os.listdir(folder))
    for name, array in zip(names, arrays, strict=True):
        loaded = np.load(folder / name, allow_pickle=False)
        assert (loaded.dtype, loaded.shape) == (array.dtype, array.shape)
        assert np.array_equal(loaded, array)


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "o.npy").write_bytes(b"old")
    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(OSError, match="No space left"):
        write_outputs(str(tmp_path), [np.zeros(3)], [t((3,), name="o")])
    assert (tmp_path / "o.npy").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["o.npy"]


PICTURE = t((1, 4, 4, 3), "uint8", 0.5)


def classifier(extra: bool) -> Graph:
    outputs = [t((1, 2), "uint8", 1 / 255), *([t((2,))] if extra else [])]
    return graph_of([op("SPLIT", [PICTURE], outputs)], [PICTURE], outputs)


def meaning_of(graph: Graph, labels: Sequence[str]) -> Meaning:
    return Meaning(View(graph, graph.outputs, graph.inputs[0], labels))


def result(extra: bool = False, labels: Sequence[str] = ("cat", "dog"), most: int = 2) -> Result:
    outputs = [np.array([[51, 102]], np.uint8), np.array([0.25, 0.5], np.float32)]
    graph = classifier(extra)
    return Result(meaning_of(graph, labels), outputs[: 1 + extra], None, most)


def test_a_row_is_one_line_whatever_the_file_is_called() -> None:
    assert result().row("a\tb\nc\rd é.jpg") == "a\\tb\\nc\\rd é.jpg\t0.4: 1 dog\t0.2: 0 cat"
    assert result(most=1).lines == ["0.4: 1 dog"]


def test_other_outputs_stand_beside_what_was_found() -> None:
    made = result(extra=True, most=1)
    assert made.lines[0] == "0.4: 1 dog"
    assert made.lines[1].startswith("output(1)")
    assert "\t2 float32, 0.25 to 0.5" in made.row("a.jpg")
    alone = Difference(None, "", (0, 0.5))
    entry = made.entry(Distances(alone, alone, alone))
    assert [row["label"] for row in entry["results"]] == ["dog"]
    (output,) = entry["outputs"]
    assert output["shape"] == [2]
    assert (output["max_difference_reference"], output["max_difference_cpu"]) == (0.5, 0.5)


def test_after_ctrl_c_there_is_nothing() -> None:
    graph = classifier(extra=True)
    made = Result(meaning_of(graph, ["cat"]), (), None, 5)
    assert (made.lines, made.entry(None), made.row("a")) == ([], {}, "a")
