# SPDX-License-Identifier: Apache-2.0
"""The launch that selects boxes one by one (NMS): `detections_select` of detections.cl."""

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
Selection = tuple[Tensor, Tensor, Tensor]  # indices, scores, count


@dataclass(frozen=True, slots=True)
class BoxScores:
    """Scores from which `detections_select` selects boxes."""

    scores: Tensor
    elements: int  # boxes per class
    most: int  # selected boxes per class
    least: int  # bits of the minimum score
    absent: int  # bits of the score written for missing boxes
    classes: int = 1
    stride: int = 1  # scores per box
    first: int = 0  # index of the first class's score

    def launch(self, outputs: Selection, extra: Params, modes: Defines, target: Target) -> Launch:
        """Return the launch.

        Raises:
            Unsupported: too many boxes for the loops of a work-item.
        """
        rounds = ceil_div(self.elements, GROUP_ITEMS)
        if self.most * (rounds + GROUP_ITEMS + 1) + 2 * rounds + GROUP_ITEMS > MOST_ROUNDS:
            raise Unsupported(f"{self.most} of {self.elements} boxes: too many for a work-item")
        live = temporary("live", (self.classes, self.elements), "float32")
        indices, selected_scores, count = outputs
        params = extra | {
            "scores": self.scores,
            **quantisation(self.scores, "score"),
            **{name: getattr(self, name) for name in ("elements", "most", "least", "absent")},
            **{name: getattr(self, name) for name in ("stride", "first")},
            "live_output": live,
            "places_output": indices,
            "found_output": selected_scores,
            "count_output": count,
        }
        # A work-group of one item scans contiguous boxes; several would stride through a core's
        # cache.
        items = GROUP_ITEMS if target.group_items > 1 else 1
        defines = modes | types_of(self.scores) | {"SCRATCH_INTS": 2 * items + 1}
        return launch_of(FILE, "detections_select", self.classes, items, params, defines)


def types_of(scores: Tensor) -> Defines:
    """Return the macros of the scores' type."""
    return {"SCORE_ELEM": ELEM[scores.dtype], "IS_SCORED": int(scores.dtype == "uint8")}


def quantisation(tensor: Tensor, name: str) -> Params:
    """Return the fields of scale and zero point; for floats they are unused."""
    scale, zero = per_tensor(tensor, ("uint8",)) if tensor.dtype == "uint8" else (1.0, 0)
    return {f"{name}_zero": zero, f"{name}_scale": bits(scale)}
