# SPDX-License-Identifier: Apache-2.0
"""All heads together."""

from __future__ import annotations

import re
from pathlib import Path

from label_image.heads.registry import DRAWN, HEADS, TASKS, possible
from tests.support.model import t
from tests.support.views import name_of, view_of

ROOT = Path(__file__).resolve().parents[3]


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


def test_what_a_model_passes_on_is_no_result() -> None:
    view = view_of([t((1, 10))])
    assert name_of(view) == "classification"
    fed = view.graph.inputs[0]
    passed = view_of([fed], fed)
    assert name_of(passed, "segmentation") is None
