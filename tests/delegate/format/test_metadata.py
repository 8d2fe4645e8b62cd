# SPDX-License-Identifier: Apache-2.0
"""TFLite's metadata, read from models that carry it, whole and damaged."""

from __future__ import annotations

import random

import pytest

from delegate import ModelError
from delegate.inspect import (
    AssociatedFile,
    ModelMetadata,
    TensorMetadata,
    read_metadata,
    read_model,
)
from tests.support.command import pooling_model
from tests.support.metadata import with_metadata
from tests.support.model import t

MODEL = pooling_model(t((1, 4, 4, 3), "float32"))
INPUT = {"name": "image", "content": "image", "mean": [1, 2, 3], "std": [4.5]}
OUTPUT = {
    "name": "probability",
    "content": "feature",
    "calibration": (1, 0.25),
    "threshold": 0.5,
    "files": [("labels.txt", "axis labels", ""), ("c.csv", "score calibration", "en")],
}


def test_what_the_author_says_is_read() -> None:
    model = with_metadata(MODEL, [INPUT], [OUTPUT, {"name": "other"}], {"labels.txt": b"a\nb\n"})
    assert read_metadata(model) == ModelMetadata(
        "a model",
        (TensorMetadata("image", "image", (1, 2, 3), (4.5,)),),
        (
            TensorMetadata(
                "probability",
                "feature",
                files=(
                    AssociatedFile("labels.txt", "axis labels"),
                    AssociatedFile("c.csv", "score calibration", "en"),
                ),
                score_transform="log",
                default_score=0.25,
                threshold=0.5,
            ),
            TensorMetadata("other"),
        ),
    )
    assert len(read_model(model).nodes) == 2


def test_a_model_without_metadata_has_none() -> None:
    assert read_metadata(MODEL) is None


def test_no_damage_is_more_than_an_error() -> None:
    model = with_metadata(MODEL, [INPUT], [OUTPUT])
    start = model.index(b"M001") - 4
    rng = random.Random(1)
    refused = 0
    for _ in range(500):
        damaged = bytearray(model)
        for _ in range(rng.choice((1, 4))):
            damaged[rng.randrange(start, start + 300)] = rng.choice((0, 1, 0x7F, 0xFF))
        try:
            assert isinstance(read_metadata(bytes(damaged)), ModelMetadata)
        except ModelError:
            refused += 1
    assert refused > 50


def test_what_is_no_metadata_is_named() -> None:
    model = with_metadata(MODEL, [INPUT]).replace(b"M001", b"XXXX")
    with pytest.raises(ModelError, match="this is not the metadata: bytes"):
        read_metadata(model)
