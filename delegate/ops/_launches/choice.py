# SPDX-License-Identifier: Apache-2.0
"""The launch that chooses boxes one after the other: `detections_select` of detections.cl."""

from __future__ import annotations

from dataclasses import dataclass

from delegate.errors import Unsupported
from delegate.graph.ir import Tensor
from delegate.launch import Defines, Launch, Params, temporary
from delegate.ops._checks.quantized import per_tensor
from delegate.ops._launches.tiles import GROUP_ITEMS, MOST_ROUNDS, launch_of
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import bits, ceil_div
from delegate.target import Target

FILE = "detections"
Chosen = tuple[Tensor, Tensor, Tensor]  # places, their scores, and how many there are


@dataclass(frozen=True, slots=True)
class BoxScores:
    """What a launch of `detections_select` chooses from."""

    scores: Tensor
    elements: int  # boxes of a class
    most: int  # that are chosen of a class
    least: int  # the bits of the least score
    absent: int  # the bits of the score of no box
    classes: int = 1
    stride: int = 1  # scores of a box
    first: int = 0  # which of them is the first class's

    def launch(self, outputs: Chosen, more: Params, how: Defines, target: Target) -> Launch:
        """Return the launch; `outputs`: places, their scores, and how many.

        Raises:
            Unsupported: so many boxes that a work-item's loops would have too many rounds.
        """
        rounds = ceil_div(self.elements, GROUP_ITEMS)
        if self.most * (rounds + GROUP_ITEMS + 1) + 2 * rounds + GROUP_ITEMS > MOST_ROUNDS:
            raise Unsupported(f"{self.most} of {self.elements} boxes: too many for a work-item")
        live = temporary("live", (self.classes, self.elements), "float32")
        places, found, count = outputs
        params = more | {
            "scores": self.scores,
            **quantisation(self.scores, "score"),
            **{name: getattr(self, name) for name in ("elements", "most", "least", "absent")},
            **{name: getattr(self, name) for name in ("stride", "first")},
            "live_output": live,
            "places_output": places,
            "found_output": found,
            "count_output": count,
        }
        # A group of one passes over neighbours, where others are far apart in a core's cache.
        items = GROUP_ITEMS if target.group_items > 1 else 1
        defines = how | types_of(self.scores) | {"SCRATCH_INTS": 2 * items + 1}
        return launch_of(FILE, "detections_select", self.classes, items, params, defines)


def types_of(scores: Tensor) -> Defines:
    """Return the macros of the scores' type."""
    return {"SCORE_ELEM": ELEM[scores.dtype], "IS_SCORED": int(scores.dtype == "uint8")}


def quantisation(tensor: Tensor, name: str) -> Params:
    """Return the fields of a scale and a zero point, of floats numbers that say nothing."""
    scale, zero = per_tensor(tensor, ("uint8",)) if tensor.dtype == "uint8" else (1.0, 0)
    return {f"{name}_zero": zero, f"{name}_scale": bits(scale)}
