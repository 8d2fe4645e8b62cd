# SPDX-License-Identifier: Apache-2.0
"""A worker's job in this process: paths and decoders stay open from chunk to chunk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

pytest.importorskip("distributed")

from label_image import flags
from label_image.cluster.chunks import Chunks
from label_image.cluster.classifier import ChunkResult, ClassificationWork, ClassifierSettings
from label_image.decoders import DecoderFailed
from label_image.many_pictures import job_of_many
from label_image.prepare import prepare
from tests.support.without_tflite import needs_tflite

pytestmark = needs_tflite

COLOURS = ("blue", "green", "red")


@pytest.fixture
def classifier(pictures: Path) -> Iterator[ClassificationWork]:
    words = ("-m", "model.tflite", "-l", "labels.txt", "-i", "pictures", "--batch", "2")
    prepared = prepare(flags.parse(words))
    job = replace(job_of_many(prepared), is_silent=True)
    view = replace(prepared.meaning.view, graph=cast(Any, None))
    known = ClassifierSettings(
        job, replace(prepared.meaning, view=view), floats=False, compares_all=True,
        most=1, keeps_outputs=False, processes=1,
    )  # fmt: skip
    work = ClassificationWork(known, "a job", None, False, 0.0)
    yield work
    work.close()


def chunks(*names: str, by_bytes: bool = False) -> Any:
    chunks = Chunks(len(names), 1)
    chunks.are_by_bytes = by_bytes
    paths = ((number, f"shown {name}", name) for number, name in enumerate(names, 1))
    return next(chunks.of(paths))


def rows_of(result: ChunkResult | None) -> list[str]:
    assert result is not None
    return [each.row or each.outcome.error for each in result.records]


def path(colour: str) -> str:
    return f"pictures/{colour}/{colour}.png"


def test_what_is_open_serves_the_next_chunk(classifier: ClassificationWork) -> None:
    first = classifier.run(chunks(path("blue"), path("green"), path("red")))
    series, decoders = classifier._series, classifier._decoders
    second = classifier.run(chunks(path("red"), by_bytes=True))
    assert rows_of(first) == [
        f"shown {path(colour)}\t0.8: {index} {colour}"
        for colour, index in (("blue", 2), ("green", 1), ("red", 0))
    ]
    assert rows_of(second) == [f"shown {path('red')}\t0.8: 0 red"]
    assert (classifier._series, classifier._decoders) == (series, decoders)
    assert first is not None
    assert (first.device, first.failure) == ("CPU", "")
    assert {each.outcome.outputs for each in first.records} == {()}


def test_pictures_that_cannot_be_read_are_told_by_their_names(
    classifier: ClassificationWork,
) -> None:
    Path("no.png").write_text("no picture")
    rows = rows_of(classifier.run(chunks("no.png", "none.png", path("red"), by_bytes=True)))
    assert rows[0].startswith("cannot read picture shown no.png")
    assert rows[1:] == [
        "input file shown none.png not found", f"shown {path('red')}\t0.8: 0 red",
    ]  # fmt: skip


def test_another_file_of_that_name_is_not_taken_for_it(classifier: ClassificationWork) -> None:
    chunk = chunks(path("red"))
    Path(path("red")).write_bytes(b"another")
    assert classifier.run(chunk) is None


def test_a_chunk_that_broke_off_leaves_no_picture_for_the_next(
    classifier: ClassificationWork, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier.run(chunks(path("blue")))
    with monkeypatch.context() as patched:
        patched.setattr(
            "label_image.decoders._Decoder.receive", lambda *_: (_ for _ in ()).throw(DecoderFailed)
        )
        with pytest.raises(DecoderFailed):
            classifier.run(chunks(path("blue"), path("green")))
    rows = rows_of(classifier.run(chunks(path("red"))))
    assert rows == [f"shown {path('red')}\t0.8: 0 red"]
