# SPDX-License-Identifier: Apache-2.0
"""The command with models that are no classifiers of one picture: their inputs and outputs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from delegate import DeviceInfo
from delegate.inspect import Node, Tensor
from delegate.run.executor import Executor
from tests.support.command import Run
from tests.support.model import chain_model, const, op, t
from tests.support.shared import model_path, picture_path
from tests.support.tiers import slow
from tflite_opencl.cli.messages import stamped

POOL = {"stride_w": 4, "stride_h": 4, "filter_width": 4, "filter_height": 4, "padding": "VALID"}
WORDS = ("-m", "model.tflite")
SEEN = (*WORDS, "-i", "picture.bmp")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with picture.bmp, and go there."""
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (4, 4), (51, 204, 102)).save(tmp_path / "picture.bmp")
    return tmp_path


def write(folder: Path, *nodes: Node, **ends: Any) -> None:
    (folder / "model.tflite").write_bytes(chain_model(nodes, **ends))


def picture(dtype: str = "uint8", scale: float | None = 0.5, name: str = "picture") -> Tensor:
    return t((1, 4, 4, 3), dtype, scale, name=name)


def averages(source: Tensor, name: str = "averages") -> list[Node]:
    """Return nodes that give the average of each channel, a row of scores."""
    scale = source.quantization.scale[0] if source.quantization else None
    pooled = t((1, 1, 1, 3), source.dtype, scale)
    row = t((1, 3), source.dtype, scale, name=name)
    return [
        op("AVERAGE_POOL_2D", [source], [pooled], POOL),
        op("RESHAPE", [pooled], [row], {"new_shape": [1, 3]}),
    ]


def reversed_rows(source: Tensor, name: str = "map") -> Node:
    """Return a node that gives a picture upside down, which is no row of scores."""
    result = t(source.shape, source.dtype, 0.5, name=name)
    return op("REVERSE_V2", [source, const(np.ones(1, np.int32))], [result])


def best_channel(source: Tensor, name: str = "classes") -> Node:
    """Return a node that gives the number of each pixel's largest channel."""
    axis = t((), "int32", data=3)
    classes = t((1, 4, 4), "int64", name=name)
    return op("ARG_MAX", [source, axis], [classes], {"output_type": "int64"})


MAP_LINES = [
    "INFO: output(0) map: 1x4x4x3 uint8, 51 to 204 "
    "(dequantised 25.5 to 102: scale 0.5, zero point 0)",
    "INFO: output(0) values: 51, 204, 102, 51, 204, 102, 51, 204, ...",
]
CLASSES_LINES = [
    "INFO: output(0) classes: 1x4x4 int64, 1 to 1",
    "INFO: output(0) values: 1, 1, 1, 1, 1, 1, 1, 1, ...",
]


# --- outputs


def test_a_map_is_described_with_labels_or_without(files: Path, run: Run) -> None:
    write(files, reversed_rows(picture()))
    for _ in range(2):
        ran = run(*SEEN)
        assert (ran.code, ran.out) == (0, [])
        assert ran.outputs == ran.lines[-2:] == MAP_LINES
        (files / "labels.txt").write_text("red\ngreen\nblue\n")
    # A user who names the channels wants classes of pixels.
    assert run(*SEEN, "-l", "labels.txt").lines[-1] == "INFO: 100.0 %: 1 green"


def test_json_describes_outputs_instead_of_results(files: Path, run: Run) -> None:
    write(files, best_channel(picture()))
    ran = run(*SEEN, "--json", "out.json")
    assert (ran.code, ran.outputs, ran.lines[-1]) == (0, [], "INFO: 100.0 %: 1")
    document = json.loads((files / "out.json").read_text())
    assert list(document) == [*stamped({}), "model", "image", "runtime", "cpu"]
    assert "results" not in document["cpu"]
    assert document["cpu"]["segments"] == [{"index": 1, "label": None, "share": 1.0}]
    assert document["cpu"]["outputs"] == [
        {
            "name": "classes",
            "shape": [1, 4, 4],
            "dtype": "int64",
            "min": 1,
            "max": 1,
            "first_values": [1] * 8,
        }
    ]


def test_several_outputs_are_all_described(files: Path, run: Run) -> None:
    source = picture()
    write(files, best_channel(source), *averages(source))
    assert run(*SEEN).outputs == [
        *CLASSES_LINES,
        "INFO: output(1) averages: 1x3 uint8, 51 to 204 "
        "(dequantised 25.5 to 102: scale 0.5, zero point 0)",
        "INFO: output(1) values: 51, 204, 102",
    ]


def test_labels_make_the_first_of_several_outputs_scores(files: Path, run: Run) -> None:
    source = picture()
    write(files, *averages(source), best_channel(source))
    assert [line[:15] for line in run(*SEEN).outputs[::2]] == ["INFO: output(0)", "INFO: output(1)"]
    (files / "labels.txt").write_text("red\ngreen\nblue\n")
    ran = run(*SEEN, "--json", "out.json")
    assert ran.lines[-5:] == [
        "INFO: 0.8: 1 green", "INFO: 0.4: 2 blue", "INFO: 0.2: 0 red",
        *(line.replace("output(0)", "output(1)") for line in CLASSES_LINES),
    ]  # fmt: skip
    entry = json.loads((files / "out.json").read_text())["cpu"]
    assert [row["label"] for row in entry["results"]] == ["green", "blue", "red"]
    assert [output["name"] for output in entry["outputs"]] == ["classes"]


HINT = "no labels: classes are shown by number (--labels FILE names them"


def test_without_labels_classes_are_shown_by_their_numbers(files: Path, run: Run) -> None:
    row, shares = averages(picture()), t((1, 3), "uint8", 1 / 256)
    write(files, *row, op("SOFTMAX", [row[-1].outputs[0]], [shares], {"beta": 0.01}))
    ran = run(*SEEN)
    assert ran.code == 0
    assert f"INFO: {HINT})" in ran.lines
    assert [line.split()[-1] for line in ran.lines[-3:]] == ["1", "2", "0"]
    several = run(*WORDS, "picture.bmp", "picture.bmp", "-r", "3")
    assert [f"INFO: {each}" for each in several.out[0].split("\t")[1:]] == ran.lines[-3:]


def test_features_are_no_classes(files: Path, run: Run) -> None:
    write(files, *averages(picture()))
    ran = run(*SEEN, "--json", "out.json")
    assert ran.lines[-3] == "INFO: an embedding: 3 numbers, L2 norm 116.856"
    assert ran.outputs[0] == ran.lines[-2]
    assert json.loads((files / "out.json").read_text())["cpu"]["embedding"] == [25.5, 102, 51]
    ran = run(*SEEN, "--task", "classification")
    assert f"INFO: {HINT}; --task embedding if it has none)" in ran.lines
    assert ran.lines[-3:] == ["INFO: 0.8: 1", "INFO: 0.4: 2", "INFO: 0.2: 0"]


def test_outputs_are_recognised_by_the_shapes_of_the_run(files: Path, run: Run) -> None:
    pooled, _ = averages(picture())
    unknown = t((1, 1), "uint8", 0.5)
    target = const(np.array([1, 3], np.int32))
    write(files, pooled, op("RESHAPE", [pooled.outputs[0], target], [unknown], {}))
    (files / "labels.txt").write_text("red\ngreen\nblue\n")
    assert run(*SEEN).lines[-3] == "INFO: 0.8: 1 green"
    assert run(*WORDS, "picture.bmp", "picture.bmp").out == ["picture.bmp\t0.8: 1 green"] * 2


def test_several_pictures_get_a_row_of_what_their_outputs_are(files: Path, run: Run) -> None:
    write(files, best_channel(picture()))
    Image.new("RGB", (4, 4), (204, 51, 102)).save(files / "red.png")
    ran = run(*WORDS, "picture.bmp", "red.png", "--json", "out.json")
    assert (ran.code, ran.out) == (
        0,
        ["picture.bmp\t100.0 %: 1", "red.png\t100.0 %: 0"],
    )
    first, second = json.loads((files / "out.json").read_text())["pictures"]
    assert list(first) == ["image", "segments", "outputs"]
    assert (first["outputs"][0]["max"], second["outputs"][0]["max"]) == (1, 0)


# --- --output_dir


def test_outputs_are_written_and_named_after_tensors(files: Path, run: Run) -> None:
    source = picture()
    write(files, *averages(source, "a/b:0"), best_channel(source))
    ran = run(*SEEN, "--output_dir", "new/folder")
    assert ran.code == 0
    assert ran.lines[-1] == "INFO: the outputs are in new/folder: a_b_0.npy, classes.npy"
    assert sorted(os.listdir(files / "new/folder")) == ["a_b_0.npy", "classes.npy"]
    assert np.load(files / "new/folder/a_b_0.npy").tolist() == [[51, 204, 102]]
    classes = np.load(files / "new/folder/classes.npy")
    assert (classes.shape, classes.dtype) == ((1, 4, 4), np.int64)


@slow
def test_each_of_several_pictures_has_its_own_folder(files: Path, run: Run) -> None:
    write(files, best_channel(picture()))
    (files / "other").mkdir()
    Image.new("RGB", (4, 4), (204, 51, 102)).save(files / "other/picture.bmp")
    words = (*WORDS, "picture.bmp", "nosuch.bmp", "other/picture.bmp", "--output_dir", "o")
    assert run(*words).code == 255
    assert sorted(os.listdir(files / "o")) == ["000001_picture.bmp", "000003_picture.bmp"]
    assert np.load(files / "o/000001_picture.bmp/classes.npy").max() == 1
    assert np.load(files / "o/000003_picture.bmp/classes.npy").max() == 0


@pytest.mark.parametrize("words", [SEEN, (*WORDS, "picture.bmp")], ids=["one", "several"])
def test_a_folder_that_cannot_be_written_in_the_end_is_one_line(
    files: Path, run: Run, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    write(files, best_channel(picture()))
    monkeypatch.setattr(os, "makedirs", refuse)
    ran = run(*words, "--output_dir", "o")
    assert ran.code == 255
    assert re.fullmatch(r"ERROR: cannot write o.*: Permission denied", ran.lines[-1])


# --- inputs


def sound_model(folder: Path) -> None:
    """Write a model of a row of numbers that are clamped at 0; the output is no row of scores."""
    sound = t((1, 4), "float32", name="sound")
    write(folder, op("RELU", [sound], [t((1, 4), "float32", name="louder")]))


def test_an_input_that_is_no_picture_gets_zeros_with_a_warning(files: Path, run: Run) -> None:
    sound_model(files)
    ran = run(*WORDS)
    assert ran.code == 0
    assert ran.beginning("WARN: ") == [
        "WARN: zeros go to sound (1x4 float32): --input NAME=FILE.npy gives other values"
    ]
    assert ran.outputs == [
        "INFO: output(0) louder: 1x4 float32, 0 to 0",
        "INFO: output(0) values: 0, 0, 0, 0",
    ]


@pytest.mark.parametrize("name", ["sound", "0"])
def test_an_input_takes_a_file_and_needs_no_picture(files: Path, run: Run, name: str) -> None:
    sound_model(files)
    np.save(files / "a.npy", np.array([[-1, 2, 0.5, -3]], np.float32))
    ran = run(*WORDS, "--input", f"{name}=a.npy", "--verbose", "1", "--json", "out.json")
    assert ran.code == 0
    assert ran.beginning("WARN: ") == []
    assert ran.outputs[1] == "INFO: output(0) values: 0, 2, 0.5, 0"
    assert "INFO: number of inputs: 1" in ran.lines
    assert json.loads((files / "out.json").read_text())["inputs"] == {name: "a.npy"}


@slow
def test_the_picture_goes_to_the_only_input_that_takes_one(files: Path, run: Run) -> None:
    numbers, source = t((1, 3), "uint8", 1.0, name="numbers"), picture(scale=1.0)
    *nodes, last = averages(source)
    (row,) = last.outputs
    total = t((1, 3), "uint8", 1.0, name="total")
    add = op("ADD", [numbers, row], [total])
    write(files, *nodes, last, add, inputs=[numbers, source])
    (files / "labels.txt").write_text("red\ngreen\nblue\n")
    ran = run(*SEEN)
    assert ran.code == 0
    assert ran.beginning("WARN: ") == [
        "WARN: the picture goes to picture, zeros go to numbers (1x3 uint8): "
        "--input NAME=FILE.npy gives other values"
    ]
    assert ran.lines[-3:] == ["INFO: 0.8: 1 green", "INFO: 0.4: 2 blue", "INFO: 0.2: 0 red"]
    np.save(files / "n.npy", np.array([[204, 0, 0]], np.uint8))
    ran = run(*SEEN, "--input", "numbers=n.npy")
    assert ran.beginning("WARN: ") == []
    assert ran.lines[-3] == "INFO: 1: 0 red"
    several = run(*WORDS, "picture.bmp", "picture.bmp", "--batch", "2", "--input", "0=n.npy")
    assert (several.code, several.out) == (0, ["picture.bmp\t1: 0 red"] * 2)


def test_a_file_takes_the_picture_s_place(files: Path, run: Run) -> None:
    write(files, best_channel(picture()))
    np.save(files / "p.npy", np.full((1, 4, 4, 3), [1, 2, 3], np.uint8))
    ran = run(*WORDS, "--input", "picture=p.npy")
    assert (ran.code, ran.lines[-1]) == (0, "INFO: 100.0 %: 2")
    several = run(*WORDS, "picture.bmp", "picture.bmp", "--input", "picture=p.npy")
    assert (several.code, several.out) == (255, [])
    assert several.lines[-1] == (
        "ERROR: --image: no input takes a picture: "
        "picture (1x4x4x3 uint8): --input gives its values"
    )


def test_int16_pictures_are_normalised_and_their_scores_dequantised(files: Path, run: Run) -> None:
    write(files, *averages(picture("int16", 2**-15)))
    (files / "labels.txt").write_text("red\ngreen\nblue\n")
    ran = run(*SEEN)
    assert ran.code == 0
    # (204 - 127.5) / 127.5 is 0.6; the others are negative.
    assert ran.lines[-1] == "INFO: 0.600006: 1 green"
    assert run(*SEEN, "-b", "0", "-s", "255").lines[-3] == "INFO: 0.799988: 1 green"


def test_integer_inputs_and_truth_values_work(files: Path, run: Run) -> None:
    both = t((4,), "bool", name="a"), t((4,), "bool", name="b")
    write(files, op("LOGICAL_OR", both, [t((4,), "bool", name="or")]))
    np.save(files / "a.npy", np.array([True, False, True, False]))
    assert run(*WORDS, "--input", "a=a.npy").outputs == [
        "INFO: output(0) or: 4 bool, false to true",
        "INFO: output(0) values: true, false, true, false",
    ]


BAD_INPUTS: list[tuple[str, list[str], str]] = [
    ("missing", ["sound=no.npy"], "--input sound: there is no file no.npy"),
    ("no-npy", ["sound=picture.bmp"], "--input sound: picture.bmp is no .npy file, as .+"),
    ("pickled", ["sound=objects.npy"], "--input sound: objects.npy holds pickled .+ never loaded"),
    ("shape", ["sound=row.npy"], "--input sound: row.npy holds 4 float32, .* takes 1x4 float32"),
    ("type", ["0=ints.npy"], "--input 0: ints.npy holds 1x4 int64, .* takes 1x4 float32"),
    (
        "unknown",
        ["other=row.npy"],
        "--input: there is no input other; the model has one input: sound",
    ),
    ("twice", ["sound=ok.npy", "0=ok.npy"], "--input 0: this input is given twice"),
    ("no-file", ["sound"], "--input: 'sound' is not NAME=FILE .*"),
]


@pytest.mark.parametrize(
    ("given", "line"), [case[1:] for case in BAD_INPUTS], ids=[case[0] for case in BAD_INPUTS]
)
def test_bad_input_is_one_clear_line(files: Path, run: Run, given: list[str], line: str) -> None:
    sound_model(files)
    np.save(files / "ok.npy", np.zeros((1, 4), np.float32))
    np.save(files / "row.npy", np.zeros(4, np.float32))
    np.save(files / "ints.npy", np.zeros((1, 4), np.int64))
    np.save(files / "objects.npy", np.array([{}]), allow_pickle=True)
    ran = run(*WORDS, *(word for each in given for word in ("--input", each)))
    is_usage = "=" not in given[0] or "there is no input" in line
    assert (ran.code, ran.out) == (64 if is_usage else 255, [])
    assert re.fullmatch(f"ERROR: {line}", ran.lines[-1])
    assert len(ran.beginning("INFO: ")) == len(ran.lines) - 1


# --- on every OpenCL device


def gpu(device: DeviceInfo) -> tuple[str, ...]:
    return "--use_gpu", "--device", str(device.index), "--json", "out.json"


@slow
@pytest.mark.parametrize("child", [[], ["--isolate"]], ids=["here", "in-a-child"])
def test_outputs_of_every_type_are_compared(
    device: DeviceInfo, files: Path, run: Run, child: list[str]
) -> None:
    source, floats = picture(), t((1, 4, 4, 3), name="floats")
    doubled = t((1, 4, 4, 3), name="doubled")
    maps, classes = reversed_rows(source), best_channel(source)
    signs = op("GREATER", [doubled, floats], [t((1, 4, 4, 3), "bool", name="signs")])
    write(
        files,
        op("DEQUANTIZE", [source], [floats]),
        op("ADD", [floats, floats], [doubled]),
        maps,
        classes,
        signs,
        outputs=[classes.outputs[0], maps.outputs[0], signs.outputs[0], doubled],
    )
    ran = run(*SEEN, *gpu(device), "--min_nodes_per_partition", "1", *child)
    assert ran.code == 0
    assert "equal to TFLite's reference kernels" in ran.table
    assert ran.outputs[0] == CLASSES_LINES[0]
    document = json.loads((files / "out.json").read_text())
    assert "not_compared" not in document
    assert document["max_difference_quanta_reference"] == 0
    entries = document["gpu"]["outputs"]
    assert [entry["dtype"] for entry in entries] == ["int64", "uint8", "bool", "float32"]
    assert [entry["max_difference_reference"] for entry in entries] == [0, 0, 0, 0]
    assert [entry["max_difference_cpu"] for entry in entries] == [0, 0, 0, 0]
    assert document["cpu"]["outputs"][1]["max"] == 204


def test_an_output_that_is_wrong_behind_the_first_is_noticed(
    device: DeviceInfo, files: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lie(self: Executor, inputs: Any, outputs: Any) -> None:
        honest(self, inputs, outputs)
        for output in outputs:
            if output.nbytes == 48:
                output[0] ^= 8

    source = picture()
    pooled = t((1, 4, 4, 3), "uint8", 0.5, name="pooled")
    same = {"stride_w": 1, "stride_h": 1, "filter_width": 1, "filter_height": 1}
    write(
        files,
        *averages(source),
        op("AVERAGE_POOL_2D", [source], [pooled], {"padding": "SAME", **same}),
    )
    honest = Executor.run
    monkeypatch.setattr(Executor, "run", lie)
    ran = run(*SEEN, *gpu(device), "--output_dir", "o")
    assert ran.code == 2
    assert ran.beginning("ERROR: ") == [
        f"ERROR: {device.name} computes wrongly: its outputs are up to 8 quanta from TFLite's "
        "reference kernels"
    ]
    entries = json.loads((files / "out.json").read_text())["gpu"]["outputs"]
    assert [entry["max_difference_reference"] for entry in entries] == [0, 8]
    assert np.load(files / "o/pooled.npy").reshape(-1)[0] == 51  # the CPU's


def test_float_maps_are_compared_with_the_reference(
    device: DeviceInfo, files: Path, run: Run
) -> None:
    source = picture("float32", None)
    write(files, op("ADD", [source, source], [t((1, 4, 4, 3), name="doubled")]))
    ran = run(*SEEN, *gpu(device))
    assert ran.code == 0
    assert "outputs floats equal to TFLite's reference kernels'" in ran.table
    document = json.loads((files / "out.json").read_text())
    assert document["gpu"]["outputs"][0]["max_difference_reference"] == 0
    assert document["max_difference_quanta_reference"] is None


@pytest.mark.parametrize("child", [[], ["--isolate"]], ids=["here", "in-a-child"])
def test_files_reach_opencl(device: DeviceInfo, files: Path, run: Run, child: list[str]) -> None:
    left, right = picture(name="left"), picture(name="right")
    write(files, op("ADD", [left, right], [t((1, 4, 4, 3), "uint8", 0.5, name="sum")]))
    np.save(files / "a.npy", np.full((1, 4, 4, 3), [10, 20, 30], np.uint8))
    ran = run(*SEEN, *gpu(device), "--input", "right=a.npy", *child)
    assert ran.code == 0
    assert ran.outputs[1] == "INFO: output(0) values: 61, 224, 132, 61, 224, 132, 61, 224, ..."
    assert "equal to TFLite's reference kernels: 0 quanta" in ran.table
    ran = run(*SEEN, *gpu(device), "--input", "left=a.npy", *child)
    assert ran.outputs[1] == "INFO: output(0) values: 61, 224, 132, 61, 224, 132, 61, 224, ..."


@slow
@pytest.mark.parametrize("batch", [[], ["--batch", "2"]], ids=["one-by-one", "at-once"])
def test_several_pictures_share_a_file(
    device: DeviceInfo, files: Path, run: Run, batch: list[str]
) -> None:
    left, right = picture(name="left"), picture(name="right")
    write(files, op("ADD", [left, right], [t((1, 4, 4, 3), "uint8", 0.5, name="sum")]))
    np.save(files / "a.npy", np.full((1, 4, 4, 3), 9, np.uint8))
    words = (*WORDS, *["picture.bmp"] * 3, *gpu(device), *batch, "--output_dir", "o")
    for name in ("left", "right"):
        ran = run(*words, "--input", f"{name}=a.npy")
        assert ran.code == 0
        assert (
            ran.out
            == [
                "picture.bmp\t1x4x4x3 uint8, 60 to 213 "
                "(dequantised 30 to 106.5: scale 0.5, zero point 0)"
            ]
            * 3
        )
        assert "equal to TFLite's reference kernels: 0 quanta" in ran.table
        first = json.loads((files / "out.json").read_text())["pictures"][0]
        assert first["outputs"][0]["max_difference_reference"] == 0
        assert np.load(files / "o/000003_picture.bmp/sum.npy").min() == 60


def test_a_model_that_tflite_cannot_run_fails_once(
    device: DeviceInfo, files: Path, run: Run
) -> None:
    source, result = t((1, 3), "uint8"), t((1, 3), "float32")
    write(files, op("fake-op-double", [source], [result], is_custom=True))
    ran = run(*WORDS, *gpu(device))
    assert ran.code == 255
    errors = ran.beginning("ERROR: ")
    assert len(errors) == 2
    assert "fake-op-double" in errors[0]
    assert errors[1] == "ERROR: Failed to allocate tensors!"


# --- results that are no numbers


def logarithms(folder: Path) -> None:
    """Write a model whose scores are logarithms of what the picture has, of which some are 0."""
    source, flat = t((1, 4, 4, 3), "float32"), t((1, 48), "float32")
    sizes = const(np.array([1, 48], np.int32))
    rows = op("RESHAPE", [source, sizes], [flat], {"new_shape": (1, 48)})
    write(folder, rows, op("LOG", [flat], [t((1, 48), name="scores")]))


@pytest.mark.parametrize("pictures", [1, 2])
@pytest.mark.parametrize("is_on_device", [False, True], ids=["cpu", "opencl"])
def test_results_that_are_not_finite_are_an_error(
    device: DeviceInfo, files: Path, run: Run, pictures: int, is_on_device: bool
) -> None:
    logarithms(files)
    flags = ["--use_gpu", "--device", str(device.index)] if is_on_device else []
    # Dark pixels become negative numbers, whose logarithms are none.
    words = ["-m", "model.tflite", "-i", *["picture.bmp"] * pictures, *flags]
    ran = run(*words)
    assert ran.code == 1
    (error,) = ran.beginning("ERROR: ")
    which = "picture.bmp: " if pictures > 1 else ""
    assert (
        error == f"ERROR: {which}output 0 scores: 32 of 48 values are not finite (NaN or infinite)"
    )
    fine = run(*words, "--input_mean", "-1", "--input_std", "1")
    assert (fine.code, fine.beginning("ERROR: ")) == (0, [])


# --- real models

REAL = {
    "ad01_int8": "INFO: output(0) Identity: 1x640 int8, ",
    "deeplabv3_mnv2_pascal_quant": "INFO: 67.8 %: 15",
    "movenet_single_pose_lightning_ptq": "INFO: 0.",
    "split_concat": "INFO: output(0) concat/split0: 1x8x8x1 uint8, ",
    "ds_cnn_s_quantized_int16": "INFO: 0.99",
    "kws_ref_model": "INFO: 0.",
}
OF_NO_PICTURE = ("ad01_int8", "ds_cnn_s_quantized_int16")


@slow
@pytest.mark.model
@pytest.mark.parametrize("name", REAL)
def test_models_that_classify_no_picture_run(
    device: DeviceInfo, files: Path, run: Run, name: str
) -> None:
    image = [] if name in OF_NO_PICTURE else ["-i", picture_path("grace_hopper_517x606.bmp")]
    ran = run(
        "-m", model_path(name), *image, *gpu(device), "--tune", "off", "--output_dir", "o"
    )  # fmt: skip
    assert ran.code == 0
    assert ran.beginning(REAL[name])
    assert ran.beginning("ERROR: ") == []
    document = json.loads((files / "out.json").read_text())
    assert document["gpu"]["nodes"] > 0
    differences = [each["max_difference_reference"] for each in document["gpu"].get("outputs", [])]
    assert not any(differences) or name == "movenet_single_pose_lightning_ptq"
    assert document["max_difference_quanta_reference"] in (0, None)
    assert len([*(files / "o").glob("*.npy")]) == (5 if name == "split_concat" else 1)
