# SPDX-License-Identifier: Apache-2.0
"""FULLY_CONNECTED: batches, kept dimensions, one row or column, multipliers of every size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tflite_opencl.common.build import FUSED, Case, case, sizes
from tflite_opencl.conformance.cases._convolution import KINDS, fully_connected

_SHAPES = ((1, 1), (3, 5), (16, 16), (17, 33), (64, 10), (129, 31), (256, 100), (8, 257))


def cases() -> Iterator[Case]:
    """Yield this family's cases."""
    for kind in KINDS:
        for (in_c, out_c), batch in itertools.product(_SHAPES, ((1,), (3,), (2, 3))):
            yield _case(kind, batch, in_c, out_c)
        for fused in FUSED[1:]:
            yield _case(kind, (2,), 20, 11, fused=fused)
        yield _case(kind, (2, 3), 12, 5, keep_num_dims=True)
        yield _case(kind, (2, 2, 3), 12, 5, keep_num_dims=True)
        yield _case(kind, (2,), 21, 9, has_bias=False)
        if kind in ("uint8", "int8"):
            low, high = (0, 255) if kind == "uint8" else (-128, 127)
            for a, c in itertools.product((low, high), repeat=2):
                for b in (low, high) if kind == "uint8" else (0,):
                    yield _case(kind, (2,), 19, 13, zeros=(a, b, c))
        if kind != "float32":
            for multiplier in (2.0**-20, 2.0**-12, 1 / 3, 0.75, 1.0, 1.5):
                yield _case(kind, (2,), 18, 14, multiplier=multiplier)


def _case(kind: str, batch: tuple[int, ...], in_c: int, out_c: int, **options: Any) -> Case:
    words = [f"in{sizes((*batch, in_c))}", f"out{out_c}"]
    for name, value in options.items():
        words.append(
            {
                "fused": str(value).lower(),
                "keep_num_dims": "keep_dims",
                "has_bias": "no_bias",
                "zeros": "zeros" + "_".join(map(str, np.atleast_1d(value))),
                "multiplier": f"multiplier{value:.4g}" if isinstance(value, float) else "",
            }[name]
        )
    return case(
        "fully_connected", kind, "-".join(words), fully_connected, kind, batch, in_c, out_c,
        **options,
    )  # fmt: skip
