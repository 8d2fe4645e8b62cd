# SPDX-License-Identifier: Apache-2.0
"""Launches of the two resizing ops: a work-item computes a run of pixels of one output row."""

from __future__ import annotations

from delegate.launch import Defines, Launch, Params
from delegate.ops._checks.resize import Resize
from delegate.ops._launches.tiles import HALF_ROUNDS, by_work, launch_over
from delegate.ops._numbers.integers import ceil_div
from delegate.target import Target

_RUN = 2048  # pixels of a work-item, where a group is one work-item
_RUN_IN_GROUP = 4


def over_runs(
    op: str,
    resize: Resize,
    params: Params,
    depth: tuple[str, int],
    lanes: int,
    pixel_work: int,
    defines: Defines,
    target: Target,
) -> Launch:
    """Return a launch over runs of an output row's pixels, and over blocks of `lanes` channels.

    `op`: the kernel and its file. `depth`: the field's name and the elements of a pixel.
    Units:
        pixel_work: multiplications of vectors
    """
    name, elements = depth
    batch, out_h, out_w, _ = resize.result.shape
    run = min(out_w, _RUN_IN_GROUP if target.group_items > 1 else _RUN)
    segments, blocks = ceil_div(out_w, run), ceil_div(elements, lanes)
    items = batch * out_h * segments * blocks
    sizes = {
        "out_h": out_h,
        "out_w": out_w,
        name: elements,
        "run": run,
        "segments": segments,
        "blocks": blocks,
        "items": items,
    }
    tiling = by_work(items, pixel_work * run, target, HALF_ROUNDS // run)
    tensors: Params = {"input": resize.source, "output": resize.result}
    return launch_over(op, op, tiling, tensors | params | sizes, defines)
