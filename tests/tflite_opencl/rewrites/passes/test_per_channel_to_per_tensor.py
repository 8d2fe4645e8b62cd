# SPDX-License-Identifier: Apache-2.0
"""One scale for a convolution's weights: small losses, and nodes that stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

from delegate.inspect import Graph, Node, Tensor, read_model, write_model
from tests.support.compare import inputs_for, interpreter, invoke
from tests.support.convolution import Convolution
from tests.support.model import const, graph_of, op, t
from tests.support.rewrites import chain, drawn_convolutions, left_by, reasons, whole
from tests.support.shared import model_path, picture_paths
from tests.support.tiers import slow
from tflite_opencl.models.default_model import default_model
from tflite_opencl.pictures.image import load_picture, to_input
from tflite_opencl.rewrites.changes import Notes
from tflite_opencl.rewrites.passes.per_channel_to_per_tensor import rewrite

Numbers = NDArray[np.float64]
RELU6 = {
    "padding": "SAME",
    "stride_h": 1,
    "stride_w": 1,
    "dilation_h_factor": 1,
    "dilation_w_factor": 1,
    "fused_activation_function": "RELU6",
}


def scales(graph: Graph) -> list[int]:
    """Return the number of scales of each convolution's weights."""
    return [len(n.inputs[1].quantization.scale) for n in graph.nodes if "CONV" in n.op]  # type: ignore[union-attr]


def convolution(source: Tensor, weights: Numbers, bias: Numbers, scale: float = 6 / 255) -> Node:
    """Return a convolution of given float weights, with per-channel scales."""
    is_depthwise = source.shape[3] == weights.shape[3] and weights.shape[0] == 1
    axis = 3 if is_depthwise else 0
    others = tuple(each for each in range(4) if each != axis)
    greatest = np.maximum(np.abs(weights).max(axis=others), 1e-6) / 127
    step = greatest.reshape([-1 if each == axis else 1 for each in range(4)])
    assert source.quantization is not None
    bias_scales = greatest * source.quantization.scale[0]
    result = t((*source.shape[:3], weights.shape[axis]), "int8", scale, -128)
    inputs = [
        source,
        const(np.rint(weights / step).astype(np.int8), greatest, axis=axis),
        const(np.rint(bias / bias_scales).astype(np.int32), bias_scales),
    ]
    return op("DEPTHWISE_CONV_2D" if is_depthwise else "CONV_2D", inputs, [result], RELU6, 3)


def block(first: Numbers, bias: Numbers, filters: Numbers) -> Graph:
    """Return a 1x1 convolution and a depthwise one, both with RELU6."""
    source = t((1, 6, 6, first.shape[3]), "int8", 0.02, 0)
    one = convolution(source, first, bias)
    return whole(graph_of([one, convolution(one.outputs[0], filters, np.zeros(len(bias)))]))


def drawn(seed: int = 0, channels: int = 8) -> tuple[Numbers, Numbers, Numbers]:
    rng = np.random.default_rng(seed)
    first = rng.uniform(-1, 1, (channels, 1, 1, 4))
    return first, rng.uniform(0, 2, channels), rng.uniform(-0.3, 0.3, (1, 3, 3, channels))


def farthest(before: Graph, after: Graph) -> int:
    """Return the largest difference of outputs, in quanta."""
    old, new = interpreter(write_model(before)), interpreter(write_model(after))
    return max(
        int(np.abs(ours.astype(int) - theirs).max())
        for given_values in inputs_for(before)
        for ours, theirs in zip(invoke(old, given_values), invoke(new, given_values), strict=True)
    )


@given(drawn_convolutions("int8"), drawn_convolutions("int8"))
@settings(max_examples=25)
def test_random_convolutions_run_with_one_scale(one: Convolution, other: Convolution) -> None:
    before = chain([one, other])
    notes = Notes()
    after = rewrite(before, notes)
    assert set(scales(after)) == {1}
    assert len(notes) == sum(count > 1 for count in scales(before))
    assert rewrite(after) is after
    assert [tensor.name for tensor in after.outputs] == [tensor.name for tensor in before.outputs]
    farthest(before, after)  # TFLite runs it


def test_similar_channels_lose_little() -> None:
    before = block(*drawn())
    notes = Notes()
    after = rewrite(before, notes)
    assert farthest(before, after) <= 2
    assert all((record.loss_db or 0) > 35 for record in notes)


def test_weights_of_dead_channel_do_not_matter() -> None:
    first, bias, filters = drawn()
    bias[3], filters[..., 3] = -9, 100  # never above 0, with weights that would need all codes
    before = block(first, bias, filters)
    notes = Notes()
    after = rewrite(before, notes)
    assert farthest(before, after) <= 2
    assert "1 outputs that are always 0" in notes[0].text
    weights = after.nodes[1].inputs[1]
    assert weights is not None
    assert not np.asarray(weights.data)[..., 3].any()


def test_small_channel_is_equalised() -> None:
    first, bias, filters = drawn()
    # Its values reach about 0.1, and the next layer amplifies them.
    first[3], bias[3], filters[..., 3] = 0.01, 0.05, 6
    before = block(first, bias, filters)
    notes = Notes()
    after = rewrite(before, notes)
    assert "outputs equalised" in notes[0].text
    assert "inputs equalised" in notes[1].text
    alone = Notes()
    plain = rewrite(before, alone, equalise=False)
    loss, plain_loss = notes[1].loss_db, alone[1].loss_db
    assert loss is not None
    assert plain_loss is not None
    assert loss > plain_loss + 6
    assert notes[1].text.endswith(f"{plain_loss:.1f} dB if not equalised")
    # The channel's quanta were coarse and are finer now, which also changes outputs.
    assert farthest(before, after) < farthest(before, plain)


def test_channel_clamped_by_relu6_is_not_equalised() -> None:
    first, bias, filters = drawn()
    first[3], bias[3], filters[..., 3] = 0.01, 7, 6
    notes = Notes()
    rewrite(block(first, bias, filters), notes)
    assert not any("equalised" in record.text for record in notes)


def test_reasons_of_unchanged_nodes() -> None:
    node = Convolution(dtype="int8", per_channel=True).node()
    source, weights, _ = node.inputs
    assert source is not None
    assert weights is not None
    real = t(source.shape, "float32"), t(node.outputs[0].shape, "float32")
    hybrid = op("CONV_2D", [real[0], weights, None], [real[1]], node.options, 5)
    assert left_by(rewrite, graph_of([hybrid])) == [
        "hybrid: float32 activations; only quantised activations are treated"
    ]
    dense = const(np.ones((3, 4), np.int8), [0.1, 0.2, 0.3])
    full = op("FULLY_CONNECTED", [t((1, 4), "int8", 1.0), dense], [t((1, 3), "int8", 1.0)])
    assert left_by(rewrite, graph_of([full])) == ["only CONV_2D and DEPTHWISE_CONV_2D are treated"]
    settable = graph_of([node], inputs=[source, weights])
    assert left_by(rewrite, settable) == ["weights or a bias that a caller may set"]


def test_graph_with_one_scale_is_unchanged() -> None:
    graph = graph_of([Convolution(dtype="int8").node()])
    assert rewrite(graph) is graph


def answers(model: bytes) -> list[int]:
    """Return the classes of the pictures, by the fastest kernels, which are not under test."""
    interp = interpreter(model, cpu_kernels="builtin")
    detail = interp.get_input_details()[0]
    return [
        int(
            invoke(interp, [to_input(load_picture(path), detail["shape"], detail["dtype"])])[
                0
            ].argmax()
        )
        for path in picture_paths(41)
    ]


@slow
@pytest.mark.model
@pytest.mark.parametrize(("name", "first_class"), [("tf2_mobilenet_v2_1.0_224_ptq", 1), ("", 0)])
def test_classifier_loses_at_most_two_pictures(name: str, first_class: int) -> None:
    source = model_path(name) if name else default_model()
    before = read_model(source)
    notes = Notes()
    after = rewrite(before, notes)
    assert reasons(notes) == []
    wanted = [int(Path(path).name[:3]) + first_class for path in picture_paths(41)]
    assert len(wanted) == 41
    right = [sum(map(int.__eq__, answers(write_model(graph)), wanted)) for graph in (before, after)]
    assert right[0] >= 30
    assert right[1] >= right[0] - 2
    worst = min(record.loss_db for record in notes if record.loss_db is not None)
    assert 20 < worst < 30
