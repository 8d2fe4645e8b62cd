# SPDX-License-Identifier: Apache-2.0
"""Hybrid convolutions: float pictures that become int8 at each run, against TFLite's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import strategies as st

from delegate import DeviceInfo, ops
from delegate.inspect import Node
from delegate.target import Rules, Target
from tests.delegate.ops._convolution.test_hybrid import hard_rows
from tests.support.cases import (
    ARM_OR_OTHER,
    FUSED,
    LANES_8,
    LANES_16,
    PLAIN,
    SIMT,
    VNNI,
    X86,
    Strategy,
    assert_exact_strategy,
    changed,
    quantization,
    refusal,
)
from tests.support.compare import RUNTIME
from tests.support.factories import assert_case_or_refused, drawn, refused
from tests.support.model import chain_model, const, op, t
from tests.support.tiers import where_rows_are_known
from tflite_opencl.conformance.cases._convolution import HYBRID, ConvCase
from tflite_opencl.models.build import stored_as

pytestmark = where_rows_are_known

STRATEGIES = (PLAIN, SIMT, LANES_8, LANES_16, *X86, *ARM_OR_OTHER)
READS_INT4 = RUNTIME.name != "tflite-runtime"  # it reads two of them as one
DEPTHWISE = ConvCase(op="DEPTHWISE_CONV_2D", size=(7, 6, 17), batch=2)
CASES = {
    "conv": ConvCase(size=(7, 6, 9), out_c=19, batch=2),
    "conv_1x1": ConvCase(size=(5, 4, 8), kernel=(1, 1), out_c=16, fused="RELU6"),
    "conv_strides": ConvCase(size=(9, 8, 4), kernel=(3, 2), stride=(2, 1), padding="VALID"),
    # For blocks of CPUs: windows that lie side by side or not, and more channels than a block has.
    "conv_blocks": ConvCase(size=(6, 19, 5), out_c=45, fused="RELU"),
    "conv_blocks_valid": ConvCase(size=(5, 21, 16), kernel=(3, 2), out_c=32, padding="VALID"),
    "conv_blocks_few": ConvCase(size=(3, 2, 70), kernel=(2, 2), out_c=33),
    "conv_blocks_matrix": ConvCase(size=(3, 5, 9), kernel=(1, 1), out_c=20, batch=3),
    "conv_blocks_dilated": ConvCase(size=(6, 9, 4), out_c=17, stride=(2, 1), dilation=(1, 2)),
    "conv_int4": ConvCase(size=(3, 4, 3), out_c=17, dilation=(2, 2), is_int4=True),
}
PER_CHANNEL = {
    "groups": ConvCase(size=(4, 5, 6), out_c=9, groups=3),
    "depthwise": DEPTHWISE,
    "depthwise_multiplied": replace(DEPTHWISE, size=(5, 4, 3), depth_multiplier=3, fused="RELU"),
    "depthwise_alone": replace(DEPTHWISE, size=(5, 4, 1), has_bias=False),
    "depthwise_dilated": replace(DEPTHWISE, size=(9, 8, 32), dilation=(2, 1), has_bias=False),
}
NODES = {
    f"{name}_{kind.replace('-', '_')}": case.node(kind, None)
    for kind in HYBRID
    for name, case in (CASES if kind == "hybrid" else CASES | PER_CHANNEL).items()
}
# A picture of more floats than one work-group quantises.
LARGE = ConvCase(size=(65, 64, 4), kernel=(1, 1), out_c=3, batch=2).node(HYBRID[1], None)
BUILT = [LARGE]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("name", NODES)
def test_equals_the_reference(device: DeviceInfo, strategy: Strategy, name: str) -> None:
    if "int4" in name and not READS_INT4:
        pytest.skip("tflite-runtime reads two weights as one")
    assert_exact_strategy(chain_model([NODES[name]]), device, strategy)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("kind", HYBRID)
def test_pictures_of_many_parts(device: DeviceInfo, strategy: Strategy, kind: str) -> None:
    """Half steps and wide ranges; the outputs are what the pictures became."""
    rows = hard_rows(67, seed=3)  # 480 rows: 32,160 floats, no multiple of a part
    pictures = np.stack([rows, rows[::-1] * np.float32(3)])[..., None]
    scales = [1.0, 2.0] if kind == HYBRID[1] else 1.0
    both = const(np.ones((2, 1, 1, 1), np.int8), scales)
    out = t((*pictures.shape[:3], 2))
    options = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "fused_activation_function": "NONE"}
    bias = const(np.zeros(2, np.float32))
    node = op("CONV_2D", [t(pictures.shape), both, bias], [out], options, version=5)
    sets = [[pictures], [np.abs(pictures)], [pictures / np.float32(1e6)]]
    assert_exact_strategy(chain_model([node]), device, strategy, inputs=sets)


@pytest.mark.parametrize(
    ("case", "names"),
    [
        (ConvCase(size=(28, 28, 3), out_c=144), ["vnni 14x16", "vnni 7x32"]),
        (ConvCase(size=(9, 8, 3), out_c=16), ["vnni 14x16"]),
        (ConvCase(size=(2, 2, 3), out_c=40), ["vnni 1x32"]),
        (ConvCase(size=(2, 2, 3), out_c=31), []),
        (ConvCase(size=(9, 8, 3), out_c=15), []),
        (ConvCase(size=(9, 8, 3), out_c=32, batch=2), []),
        (ConvCase(size=(9, 8, 3), kernel=(1, 1), out_c=32, batch=2), ["vnni 7x32"]),
        (ConvCase(size=(9, 8, 4), out_c=32, groups=2), []),
    ],
    ids=str,
)
def test_what_is_offered(case: ConvCase, names: list[str]) -> None:
    """None where a block has more channels, or pictures have zero points of their own."""
    found = [each.name for each in ops.lower(case.node(HYBRID[1], None), VNNI.target)]
    assert [name for name in found if name.startswith("vnni")] == names


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """Draw a convolution of either kind, of one scale or one a channel."""
    is_depthwise, kind = draw(st.booleans()), draw(st.sampled_from(HYBRID))
    groups = 1 if is_depthwise or kind == HYBRID[0] else draw(st.sampled_from((1, 1, 2)))
    case = ConvCase(
        op="DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D",
        size=(draw(st.integers(1, 9)), draw(st.integers(1, 9)), groups * draw(st.integers(1, 20))),
        kernel=(draw(st.integers(1, 4)), draw(st.integers(1, 4))),
        out_c=groups * draw(st.integers(1, 40)),
        depth_multiplier=draw(st.sampled_from((1, 1, 2))) if is_depthwise else 1,
        groups=groups,
        batch=draw(st.integers(1, 3)),
        stride=(draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        dilation=(draw(st.integers(1, 2)), 1),
        padding=draw(st.sampled_from(("SAME", "VALID"))),
        fused=draw(st.sampled_from(FUSED)),
        is_int4=READS_INT4 and not is_depthwise and draw(st.booleans()),
    )
    kind = HYBRID[1] if is_depthwise else kind
    return case.node(kind, None) if case.fits else DEPTHWISE.node(kind, None)


test_drawn_convolutions = drawn(nodes(), STRATEGIES, assert_case_or_refused)

CONV, DEEP = NODES["conv_hybrid"], NODES["depthwise_hybrid_per_channel"]


def least(node: Node) -> Node:
    """Return a node with weights of -128."""
    assert node.inputs[1] is not None
    return changed(node, 1, data=np.full(node.inputs[1].shape, -128, np.int8))


test_refusal = refused(
    {
        "computed": (changed(CONV, 1, data=None), "weights are not constant"),
        "least": (
            least(CONV),
            "a weight of -128: this TFLite flips its sign where an input is negative",
        ),
        "padded": (
            changed(CONV, options={"padding": "EXPLICIT"}),
            "hybrid: with its padding another value would be the last of a picture",
        ),
        "groups_of_one_scale": (
            ConvCase(size=(4, 5, 6), out_c=9, groups=3).node(HYBRID[0], None),
            "hybrid with groups and one scale: TFLite sums over all channels",
        ),
        "depthwise_of_one_scale": (
            changed(DEEP, 1, quantization=quantization(0.1)),
            "hybrid with one scale for all channels: TFLite requires one per channel",
        ),
        "depthwise_int4": (
            replace(DEPTHWISE, is_int4=True).node(HYBRID[1], None),
            "int4 weights with float32 activations: only int8",
        ),
        "int2": (
            replace(CONV, inputs=(CONV.inputs[0], stored_as(CONV.inputs[1], "int2"))),
            "int2 weights: TFLite computes them wrongly",
        ),
        "uint8": (
            changed(CONV, 1, dtype="uint8"),
            "hybrid: uint8 weights with float32 activations",
        ),
    }
)


def test_weights_of_128_where_channels_have_scales() -> None:
    """There TFLite multiplies number by number."""
    assert ops.lower(least(NODES["conv_hybrid_per_channel"]), Target())
    assert ops.lower(least(DEEP), Target())


def test_runtimes_and_processors_that_differ() -> None:
    older = Target(rules=Rules(int4_convolutions=False, hybrid_loses_channels=True))
    reason = "int4 weights: this TFLite reads two of them as one"
    assert refusal(NODES["conv_int4_hybrid"], older) == reason
    assert ops.lower(CONV, older)
    equal = changed(CONV, 1, quantization=quantization([0.1] * 19))
    reason = "hybrid with equal scales: this TFLite returns only the bias"
    assert refusal(equal, older) == reason
    assert ops.lower(equal, Target())
    other = Target(rules=Rules(processor="riscv64"))
    for node in (CONV, DEEP):
        assert "on riscv64 is not known" in refusal(node, other)
