# SPDX-License-Identifier: Apache-2.0
"""What models carry: metadata's labels, normalisation and calibration, and Ultralytics' facts."""

from __future__ import annotations

import io
import json
import logging
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from label_image import embedded_metadata
from label_image.embedded_metadata import EmbeddedMetadata, read_embedded_metadata
from tests.support.command import Run, pooling_model, pooling_nodes
from tests.support.metadata import with_files, with_metadata
from tests.support.model import chain_model, op, t

PICTURE = t((1, 4, 4, 3), "float32")
MODEL = pooling_model(PICTURE)
INPUT = {"name": "image", "mean": [0, 51, 102], "std": [255]}
LABELS = {"files": [("de.txt", "axis labels", "de"), ("own.txt", "axis labels", "")]}
FILES = {"own.txt": b"red\ngreen\nblue\n", "de.txt": b"rot\ngr\xc3\xbcn\nblau\n"}
FACTS = {"task": "detect", "names": {"0": "cat", "2": "dog"}, "kpt_shape": [17, 3]}


def test_metadata_says_which_file_has_the_labels() -> None:
    model = with_metadata(MODEL, [INPUT], [{"name": "scores", "threshold": 0.5, **LABELS}], FILES)
    assert read_embedded_metadata(model) == EmbeddedMetadata(
        outputs=["scores"], labels=["red", "green", "blue"], labels_from="own.txt",
        mean=(0, 51, 102), std=(255,), threshold=0.5,
    )  # fmt: skip
    assert read_embedded_metadata(model, input_number=1).mean == ()


def test_a_model_may_carry_nothing() -> None:
    assert read_embedded_metadata(MODEL) == EmbeddedMetadata()


@pytest.mark.parametrize(
    "facts",
    [
        {"metadata.json": json.dumps(FACTS).encode()},
        {"temp_meta.txt": repr(FACTS | {"names": {0: "cat", 2: "dog"}}).encode()},
    ],
)
def test_facts_of_ultralytics(facts: dict[str, bytes]) -> None:
    embedded = read_embedded_metadata(with_files(MODEL, facts))
    assert (embedded.labels, embedded.labels_from) == (["cat", "", "dog"], next(iter(facts)))
    assert (embedded.task, embedded.points) == ("detection", (17, 3))
    assert (embedded.mean, embedded.std) == ((0,), (255,))


def test_the_only_file_of_labels_is_taken() -> None:
    assert read_embedded_metadata(with_files(MODEL, {"labelmap.txt": b"a\nb\n"})).labels == [
        "a",
        "b",
    ]
    assert read_embedded_metadata(with_files(MODEL, {"notes.txt": b"a\nb\n"})) == EmbeddedMetadata()


DAMAGED: list[tuple[str, Any]] = [
    ("metadata.json is not used", {"metadata.json": b"{"}),
    ("temp_meta.txt is not used", {"temp_meta.txt": b"__import__('os')"}),
    ("metadata.json is not used", {"metadata.json": b'{"names": {"999999999": "a"}}'}),
    ("metadata.json is not used", {"metadata.json": b"[1]"}),
    ("labels.txt is no text", {"labels.txt": b"a\0b"}),
    ("metadata.json is not used", {"metadata.json": b"[" * 100_000}),
    ("metadata.json is not used", {"metadata.json": b'{"kpt_shape": [Infinity]}'}),
    ("metadata.json is not used", {"metadata.json": b'{"kpt_shape": [{}]}'}),
    ("metadata.json is not used", {"metadata.json": b"\xff"}),
    ("metadata.json is not used: it has more than", {"metadata.json": b" " * 5_000_000}),
    ("temp_meta.txt is not used", {"temp_meta.txt": b"-" * 3000 + b"1"}),
    ("temp_meta.txt is not used", {"temp_meta.txt": b"+".join([b"1"] * 100_000)}),
    ("temp_meta.txt is not used", {"temp_meta.txt": b"(" * 5000}),
]


@pytest.mark.parametrize(("said", "files"), DAMAGED)
def test_what_is_damaged_is_said_and_not_used(
    said: str,
    files: dict[str, bytes],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("label_image"), "propagate", True)
    assert read_embedded_metadata(with_files(MODEL, files)) == EmbeddedMetadata()
    assert said in caplog.text


def test_a_damaged_archive_is_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("label_image"), "propagate", True)
    whole = with_files(MODEL, {"labels.txt": b"some text\n" * 50})
    place = whole.index(b"some text")
    assert read_embedded_metadata(whole[:place] + b"X" + whole[place + 1 :]) == EmbeddedMetadata()
    assert "the archive behind the model is not used: Bad CRC-32" in caplog.text


def _packed(name: str, content: bytes, method: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(name, content)
    return file.getvalue()


@pytest.mark.parametrize(
    "method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)
def test_a_changed_archive_is_never_fatal(method: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte of an archive is changed in some ways: none is worse than a warning."""
    said: list[str] = []
    monkeypatch.setattr(
        embedded_metadata.log, "warning", lambda text, *words: said.append(text % words)
    )
    name = "\u00e4\u00e4.txt" if method == zipfile.ZIP_STORED else "metadata.json"
    archive = _packed(name, json.dumps(FACTS).encode(), method)
    for place in range(len(archive)):
        for changed in (b"\xff", b"\x00", bytes([archive[place] ^ 1]), b"\xff\xfe\xfd\xfc"):
            read_embedded_metadata(
                MODEL + archive[:place] + changed + archive[place + len(changed) :]
            )
    assert len({text.partition(":")[0] for text in said}) > 0
    assert all("is not used" in text or "is no text" in text for text in said)


def test_scores_are_calibrated() -> None:
    lines = b"1,2,0\n\n0.5,1,1,0.9\n"
    said = {"calibration": (0, 0.125), "files": [("c.csv", "score calibration", "")]}
    calibration = read_embedded_metadata(
        with_metadata(MODEL, [], [said], {"c.csv": lines})
    ).calibration
    assert calibration is not None
    found = calibration(np.array([0.5, 0.5, 0.5], np.float32))
    assert np.allclose(found, [1 / (1 + np.exp(-1)), 0.125, 0.125])
    assert np.isclose(calibration(np.array([0, 0, 1], np.float32))[2], 0.5 / (1 + np.exp(-2)))
    for number, made in ((1, np.log(0.25)), (2, np.log(0.25 / 0.75))):
        said["calibration"] = (number, 0.0)
        embedded = read_embedded_metadata(with_metadata(MODEL, [], [said], {"c.csv": b"1,1,0\n"}))
        assert embedded.calibration is not None
        scores = embedded.calibration(np.array([0.25], np.float32))
        assert np.isclose(scores[0], 1 / (1 + np.exp(-made)))


def test_the_command_uses_what_the_model_carries(files: Path, run: Run) -> None:
    (files / "labels.txt").write_text("of\nanother\nmodel\n")
    model = with_metadata(MODEL, [INPUT], [LABELS], FILES)
    (files / "model.tflite").write_bytes(model)
    ran = run("-m", "model.tflite", "-i", "picture.bmp")
    said = "INFO: the model carries 3 labels (own.txt); mean 0, 51, 102; standard deviation 255"
    assert said in ran.lines
    # The colour is (51, 204, 102).
    assert ran.lines[-2:] == ["INFO: 0.6: 1 green", "INFO: 0.2: 0 red"]
    several = run("-m", "model.tflite", "picture.bmp", "picture.bmp")
    assert several.out == ["picture.bmp\t0.6: 1 green"] * 2
    ran = run("-m", "model.tflite", "-i", "picture.bmp", "-l", "labels.txt", "-b", "0", "-s", "51")
    assert ran.lines[-3:] == ["INFO: 4: 1 another", "INFO: 2: 2 model", "INFO: 1: 0 of"]
    assert "the model carries" not in "".join(ran.lines)


def test_pixels_of_8_bits_are_stored_by_the_inputs_own_scale(files: Path, run: Run) -> None:
    model = chain_model(pooling_nodes(t((1, 4, 4, 3), "uint8", 1 / 255, 102)))
    (files / "model.tflite").write_bytes(with_metadata(model, [INPUT], [LABELS], FILES))
    ran = run("-m", "model.tflite", "-i", "picture.bmp")
    assert (
        "INFO: the model carries 3 labels (own.txt); mean 0, 51, 102; standard deviation 255"
        in (ran.lines)
    )
    assert ran.lines[-3:] == ["INFO: 1: 1 green", "INFO: 0.6: 0 red", "INFO: 0.4: 2 blue"]
    asked = run("-m", "model.tflite", "-i", "picture.bmp", "-b", "0", "-s", "255")
    assert asked.lines[-3:] == ["INFO: 1: 1 green", "INFO: 0.8: 2 blue", "INFO: 0.6: 0 red"]
    (files / "model.tflite").write_bytes(with_metadata(model, [], [LABELS], FILES))
    plain = run("-m", "model.tflite", "-i", "picture.bmp")
    assert plain.lines[-3:] == ["INFO: 0.8: 1 green", "INFO: 0.4: 2 blue", "INFO: 0.2: 0 red"]
    np.save(files / "x.npy", np.zeros((1, 4, 4, 3), np.uint8))
    of_file = run("-m", "model.tflite", "--input", "0=x.npy")
    assert not [line for line in of_file.lines if "pixels of 0 to 255 are" in line]
    assert [line for line in plain.lines if "pixels of 0 to 255 are" in line] == [
        "WARN: pixels of 0 to 255 are -0.4 to 0.6 to the model: if it was trained with another "
        "range, --input_mean and --input_std say it"
    ]


def test_the_command_calibrates_scores(files: Path, run: Run) -> None:
    said = {**LABELS, "calibration": (0, 0.0), "threshold": 0.51}
    said["files"] = [*LABELS["files"], ("c.csv", "score calibration", "")]
    own = FILES | {"c.csv": b"1,1,0\n1,0,0\n\n"}
    (files / "model.tflite").write_bytes(with_metadata(MODEL, [], [said], own))
    ran = run("-m", "model.tflite", "-i", "picture.bmp", "-b", "0", "-s", "255")
    assert "INFO: the model carries 3 labels (own.txt); calibrated scores; scores from 0.51" in (
        ran.lines
    )
    assert ran.lines[-1] == "INFO: 0.549834: 0 red"  # of green 0.5 is left, of blue nothing


def test_a_picture_in_pytorchs_order_has_its_channels_numbers(files: Path, run: Run) -> None:
    planar, sums = t((1, 3, 4, 4), "float32"), t((1, 3), "float32")
    axes = t((2,), "int32", data=np.array([2, 3], np.int32))
    nodes = [op("MEAN", [planar, axes], [sums], {"keep_dims": False})]
    model = with_metadata(chain_model(nodes), [INPUT], [LABELS], FILES)
    (files / "model.tflite").write_bytes(model)
    ran = run("-m", "model.tflite", "-i", "picture.bmp")
    assert ran.lines[-2:] == ["INFO: 0.6: 1 green", "INFO: 0.2: 0 red"]
