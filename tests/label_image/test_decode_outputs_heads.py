# SPDX-License-Identifier: Apache-2.0
"""All heads together."""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from label_image.decode_outputs import DRAWN, HEADS, TASKS, head_of, possible, read
from label_image.embedded_metadata import EmbeddedMetadata
from tests.support.model import t
from tests.support.tiers import slow
from tests.support.views import name_of, view_of

ROOT = Path(__file__).resolve().parents[2]


def test_each_head_is_in_the_document() -> None:
    table = (ROOT / "docs/label_image.md").read_text().partition("| task |")[2].split("\n\n")[0]
    rows = [re.findall(r"`([\w:]+)`", row.split("|")[1]) for row in table.splitlines()[2:]]
    described = set()
    for first, *others in rows:
        task = first.partition(":")[0]
        described |= {first, *(n if ":" in n else f"{task}:{n}" for n in others)}
    assert described == {head.name for head in HEADS}


def test_names_are_unique_and_of_a_task() -> None:
    names = [head.name for head in HEADS]
    assert len({*names}) == len(names)
    tasks = {name.partition(":")[0] for name in names}
    assert tasks == {*DRAWN, "classification", "embedding"}
    assert tasks | {*names} == {*TASKS}


def test_all_that_shapes_allow_is_told() -> None:
    assert possible(view_of([t((1, 10))])) == ["embedding", "classification"]
    assert possible(view_of([t((1, 300, 6))])) == ["detection:yolo10"]
    assert possible(view_of([t((2, 3, 4, 5, 6))])) == []


SIZES = [0, 1, 2, 3, 4, 6, 7, 8, 17, 32, 34, 56, 84, 85, 96, 100, 252]
SPECIAL = [(1, 1, 17, 3), (1, 6, 56), (1, 8, 8, 17), (1, 8, 8, 34), (1, 16, 16, 32), (1, 96, 4),
           (1, 96, 5), (1, 84, 56), (1, 300, 6), (1, 100, 7), (1, 100), (1, 100, 4), (1,),
           (1, 16, 16, 2), (1, 16, 16, 3), (1, 64, 64)]  # fmt: skip
VALUES = np.array([0, 0.5, 1, -1, 2, 1e30, -1e30, np.nan, np.inf, -np.inf], np.float32)


TOGETHER = [
    [(1, 8, 4), (1, 8), (1, 8), (1,)], [(1, 96, 4), (1, 96, 5)], [(1, 516, 4), (1, 516, 3)],
    [(1, 774, 4), (1, 774, 3)], [(1, 16, 16, 2)] * 3, [(1, 8, 8, 17), (1, 8, 8, 34)],
    [(1, 84, 39), (1, 16, 16, 32)],
]  # fmt: skip


def made(rng: random.Random, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return an output of this shape or of another, with values of any kind."""
    if rng.random() < 0.2:
        shape = tuple(rng.choice(SIZES) for _ in range(rng.randrange(5)))
    if math.prod(shape) > 50_000:
        shape = (1, 7)
    values = np.random.default_rng(rng.randrange(1 << 30)).choice(VALUES, shape)
    with np.errstate(all="ignore"):
        return np.asarray(values, rng.choice(["float32"] * 4 + ["uint8", "int8", "int64", "bool"]))


@slow
def test_no_shape_and_no_value_is_too_odd_for_a_head() -> None:
    rng = random.Random(1)
    embedded = [
        EmbeddedMetadata(),
        EmbeddedMetadata(task="pose", points=(17, 3)),
        EmbeddedMetadata(task="detection"),
    ]
    read_by = Counter[str]()
    for _ in range(600):
        shapes = rng.choices(SPECIAL, k=rng.choice((1, 1, 1, 2, 3, 4)))
        shapes = rng.choice((shapes, shapes, rng.choice(TOGETHER)))
        outputs = [made(rng, shape) for shape in shapes]
        tensors = [t(o.shape, str(o.dtype), *rng.choice(((), (0.5, 3)))) for o in outputs]
        fed = t(rng.choice([(1, 64, 64, 3), (1, 3, 64, 32), (1, 640), (1, 1, 1, 3)]), "uint8")
        facts = {"embedded": rng.choice(embedded), "size": (rng.choice((1, 480)), 640)}
        view = view_of(tensors, fed, labels=rng.choice([[], ["???", "a"]]), **facts)
        for task in (None, *rng.sample(TASKS, 4)):
            seen = replace(view, arrays=outputs)
            head, scene = head_of(seen, task), read(seen, task)
            if head is not None:
                read_by[head.name] += 1
                assert scene.lines(5) or scene.rows == []
                json.dumps(scene.entry(5))
                for box in (each.box for each in scene.boxes or ()):
                    assert 0 <= box.left < box.right <= 640
                    assert 0 <= box.top < box.bottom <= view.size[0]
    assert {*read_by} == {head.name for head in HEADS}


def test_what_a_model_passes_on_is_no_result() -> None:
    view = view_of([t((1, 10))])
    assert name_of(view) == "classification"
    fed = view.graph.inputs[0]
    passed = view_of([fed], fed)
    assert name_of(passed, "segmentation") is None
