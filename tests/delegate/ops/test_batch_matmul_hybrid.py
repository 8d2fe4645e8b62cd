# SPDX-License-Identifier: Apache-2.0
"""BATCH_MATMUL of float rows, which become int8 at each run, with int8 matrices."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo
from delegate.inspect import Node
from delegate.target import Rules, Target
from tests.support.cases import (
    AVX2,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    Strategy,
    assert_exact_strategy,
    changed,
    quantization,
    refusal,
)
from tests.support.compare import RUNTIME
from tests.support.factories import assert_case, assert_seeded_or_refused, drawn, refused
from tests.support.model import chain_model, const, op, t
from tests.support.tiers import where_rows_are_known

pytestmark = where_rows_are_known

STRATEGIES = (PLAIN, SIMT, LANES_8, LANES_16, AVX2)
WIDE = replace(LANES_8, alternative="")  # the first alternative, whichever it is
HAS_ASYMMETRIC = RUNTIME.name != "tflite-runtime"  # which lacks that version


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One hybrid BATCH_MATMUL by its parameters."""

    left: tuple[int, ...] = (5, 37)
    batch: tuple[int, ...] = ()  # of the right one
    columns: int = 19
    adj_y: bool = False
    asymmetric: bool = False
    is_computed: bool = False  # the right one
    least: int = -128  # weight

    def node(self, seed: int = 0) -> Node:
        rng = np.random.default_rng(seed)
        matrix = (self.left[-1], self.columns)
        shape = (*self.batch, *(matrix[::-1] if self.adj_y else matrix))
        values = rng.integers(self.least, 127, shape, endpoint=True).astype(np.int8)
        right = t(shape, "int8", 0.05) if self.is_computed else const(values, 0.05)
        outer = np.broadcast_shapes(self.left[:-2], self.batch)
        options = {
            "adj_x": False,
            "adj_y": self.adj_y,
            "asymmetric_quantize_inputs": self.asymmetric,
        }
        result = t((*outer, self.left[-2], self.columns))
        version = 4 if self.asymmetric else 1
        return op("BATCH_MATMUL", [t(self.left), right], [result], options, version)


CASES = {
    "matrices": Product(),
    "turned": Product(left=(2, 3, 40), columns=16, adj_y=True),
    "computed": Product(left=(2, 3, 20), batch=(2,), columns=7, adj_y=True, is_computed=True),
    "several": Product(left=(2, 1, 3, 20), batch=(3,), columns=7),
    "one_left_for_several": Product(left=(4, 20), batch=(3,), columns=7, is_computed=True),
    "several_wide": Product(left=(3, 18, 24), batch=(3,), columns=39),
    "several_turned": Product(left=(3, 18, 24), batch=(3,), columns=39, adj_y=True),
    "several_deep": Product(left=(2, 9, 1100), batch=(2,), columns=33, least=-128),
    "computed_turned": Product(left=(17, 33), batch=(2,), columns=20, adj_y=True, is_computed=True),
}
ASYMMETRIC = {
    "asymmetric": Product(asymmetric=True),
    "asymmetric_turned": Product(left=(3, 2, 130), columns=33, adj_y=True, asymmetric=True),
    "asymmetric_several": Product(left=(2, 3, 20), batch=(2,), asymmetric=True),
    "asymmetric_several_turned": Product(
        left=(2, 19, 36), batch=(2,), columns=37, adj_y=True, asymmetric=True
    ),
    # the sums are taken through floats, which do not hold them
    "asymmetric_deep": Product(left=(6, 2000), columns=18, asymmetric=True, least=-100),
}
RUN = CASES | (ASYMMETRIC if HAS_ASYMMETRIC else {})
NODES = {f"batch_matmul_hybrid_{name}": case.node() for name, case in CASES.items()}
BUILT = [case.node() for case in RUN.values()]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("name", RUN)
def test_equals_the_reference(device: DeviceInfo, strategy: Strategy, name: str) -> None:
    several = "computed" in name or "several" in name
    assert_case(RUN[name], device, replace(strategy, alternative="") if several else strategy)


def test_sums_that_floats_do_not_hold(device: DeviceInfo) -> None:
    """All numbers of one sign: sums of 2^25 and more."""
    node = Product(left=(4, 1900), columns=17, asymmetric=True, least=60).node()
    rows = np.abs(np.random.default_rng(0).standard_normal((4, 1900))).astype(np.float32)
    rows[1] -= np.float32(1)
    rows[2] = -rows[2]
    if HAS_ASYMMETRIC:
        assert_exact_strategy(chain_model([node]), device, inputs=[[rows]])


def test_sums_that_no_float_holds(device: DeviceInfo) -> None:
    rows = np.random.default_rng(0).standard_normal((5, 37)).astype(np.float32) * np.float32(1e38)
    assert_exact_strategy(chain_model([Product(left=(5, 37)).node()]), device, inputs=[[rows]])


@st.composite
def products(draw: st.DrawFn) -> Product:
    """Draw a product; asymmetric ones with constants."""
    outer = draw(st.sampled_from([(), (1,), (3,), (2, 1), (1, 2)]))
    is_computed = draw(st.booleans())
    return Product(
        left=(*outer, draw(st.integers(1, 9)), draw(st.integers(1, 140))),
        batch=draw(st.sampled_from([(), outer])),
        columns=draw(st.integers(1, 40)),
        adj_y=draw(st.booleans()),
        asymmetric=HAS_ASYMMETRIC and not is_computed and draw(st.booleans()),
        is_computed=is_computed,
    )


test_drawn_products = drawn(products(), (PLAIN, SIMT, WIDE), assert_seeded_or_refused)

NODE = CASES["matrices"].node()
test_refusal = refused(
    {
        "adj_x": (
            changed(changed(NODE, 0, shape=(37, 5)), options={"adj_x": True}),
            "hybrid with adj_x: the terms of a row are not contiguous",
        ),
        "zero_point": (
            changed(NODE, 1, quantization=quantization(0.05, 3)),
            "int8 with zero point 3: hybrid products ignore it",
        ),
        "scales": (
            changed(NODE, 1, quantization=quantization([0.05] * 19, axis=1)),
            "19 scales: only one per tensor here",
        ),
        "asymmetric_computed": (
            changed(CASES["computed"].node(), options={"asymmetric_quantize_inputs": True}),
            "asymmetric rows with a computed right side: TFLite keeps the sums of its first run",
        ),
        "asymmetric_several_deep": (
            Product(left=(2, 3, 2000), batch=(2,), asymmetric=True).node(),
            "asymmetric rows with several right sides: sums beyond 2^24",
        ),
        "batch_dimensions": (
            Product(left=(2, 3, 5, 8)).node(),
            "hybrid with several batch dimensions: TFLite uses another row's scale",
        ),
        "sums_in_16_bits": (
            Product(left=(3, 4000), asymmetric=True, least=100).node(),
            "sums of a row's weights: this TFLite adds them in 16 bits, which these overflow",
        ),
    }
)


def test_a_processor_that_was_not_compared() -> None:
    assert "on riscv64 is not known" in refusal(NODE, Target(rules=Rules(processor="riscv64")))
