# SPDX-License-Identifier: Apache-2.0
"""TFLite_Detection_PostProcess and NON_MAX_SUPPRESSION: launches, refusals, boxes as TFLite's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate import DeviceInfo, OpenCLDelegate, ops
from delegate.inspect import Node, flexbuffer_of
from tests.support.cases import (
    GROUPS,
    SIMT,
    Strategy,
    assert_exact_strategy,
    changed,
    forced,
    retyped,
)
from tests.support.compare import (
    assert_close,
    assert_same,
    assert_within,
    interpreter,
    invoke,
    refusals,
)
from tests.support.factories import refused
from tests.support.model import chain_model
from tflite_opencl.conformance.cases.detections import post_process, suppression

Arrays = list[NDArray[Any]]


def drawn_boxes(rng: np.random.Generator, count: int, size: float = 0.3) -> NDArray[np.float32]:
    """Return boxes inside of a picture, of which many overlap."""
    middle, half = rng.random((count, 2)), rng.random((count, 2)) * size / 2
    return np.concatenate([middle - half, middle + half], axis=1).astype(np.float32)


# TFLite_Detection_PostProcess


def detector(**changed_: Any) -> Node:
    """Return a node of 40 boxes and 3 classes."""
    made: Node = post_process(**{"count": 40, "classes": 3, "most": 9, **changed_}).nodes[0]
    return made


def codes_and_scores(node: Node, seed: int = 0) -> list[Arrays]:
    """Return input sets whose boxes lie about their anchors; scores of floats all differ."""
    rng = np.random.default_rng(seed)
    sets = []
    for spread in (1.0, 3.0):
        arrays: Arrays = []
        for tensor in node.inputs[:2]:
            assert tensor is not None
            if tensor.dtype == "uint8":
                arrays.append(rng.integers(0, 256, tensor.shape).astype(np.uint8))
            elif tensor is node.inputs[0]:
                arrays.append((rng.standard_normal(tensor.shape) * spread).astype(np.float32))
            else:
                order = rng.permutation(np.prod(tensor.shape))
                arrays.append(((order + 1) / (order.size + 1)).reshape(tensor.shape).astype("f4"))
        sets.append(arrays)
    return sets


def test_boxes_compete_by_their_best_class() -> None:
    (plain,) = ops.lower(detector(), SIMT.target)
    kernels = [launch.kernel.removeprefix("detections_") for launch in plain.launches]
    assert kernels == ["boxes", "best", "select", "output"]
    assert [launch.tiles for launch in plain.launches] == [1, 1, 1, 1]


def test_each_class_chooses_no_more_boxes_than_are_given() -> None:
    (plain,) = ops.lower(detector(is_regular=True, of_a_class=4), SIMT.target)
    kernels = [launch.kernel.removeprefix("detections_") for launch in plain.launches]
    assert kernels == ["boxes", "select", "select", "output"]
    of_classes, merged = plain.launches[1:3]
    assert (of_classes.tiles, of_classes.params["most"]) == (3, 4)
    assert (merged.tiles, merged.params["elements"], merged.params["most"]) == (1, 12, 9)


CASES = {
    "best": {},
    "background": {"has_background": True},
    "several_classes": {"of_a_box": 3},
    "more_classes_than_there_are": {"of_a_box": 2, "classes": 2},
    "regular": {"is_regular": True},
    "regular_few": {"is_regular": True, "of_a_class": 2, "has_background": True},
    "regular_high": {"is_regular": True, "least": 0.7},
    "large": {"count": 700, "classes": 20, "has_background": True, "most": 40},
    "one": {"most": 1, "count": 3},
    "long_codes": {"code_length": 7},
}


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_detections_are_tflite_s(name: str, strategy: Strategy, device: DeviceInfo) -> None:
    node = detector(**CASES[name])
    model = chain_model([node], outputs=node.outputs)
    assert_exact_strategy(model, device, strategy, inputs=codes_and_scores(node))


@pytest.mark.parametrize("has_background", [False, True])
def test_quantised_detections_are_tflite_s(has_background: bool, device: DeviceInfo) -> None:
    # Few scores, so that many are equal: the first box of them comes first.
    node = detector(dtype="uint8", has_background=has_background, count=300)
    model = chain_model([node], outputs=node.outputs)
    assert_exact_strategy(model, device, SIMT, inputs=codes_and_scores(node))


def test_a_decoded_box_is_tflite_s_or_its_neighbour(device: DeviceInfo) -> None:
    # All boxes are given, in the order of their scores.
    node = detector(count=1600, most=200, overlap=1.0, classes=1)
    model = chain_model([node], outputs=node.outputs)

    def bounds(given: Arrays) -> Any:
        return [2e-6 * (1 + np.exp(np.abs(given[0]).max() / 5)), *[np.zeros(1)] * 3]

    with forced(SIMT):
        assert_within(model, device, bounds, inputs=codes_and_scores(node))


def test_sizes_beyond_what_a_float_holds(device: DeviceInfo) -> None:
    node = detector(count=9, most=9, overlap=1.0, classes=1)
    rng = np.random.default_rng(0)
    codes = rng.standard_normal((1, 9, 4)).astype(np.float32)
    codes[0, :, 2] = [-2000, -600, -440, -87, 0, 87, 400, 440, 2000]
    scores = np.linspace(1, 0.1, 9, dtype=np.float32).reshape(1, 9, 1)
    model = chain_model([node], outputs=node.outputs)
    assert_exact_strategy(model, device, SIMT, inputs=[[codes, scores]])


NODE = detector()
ANCHORS = NODE.inputs[2]
assert ANCHORS is not None
assert ANCHORS.data is not None
GOOD = {
    "max_detections": 5, "max_classes_per_detection": 1, "num_classes": 3,
    "nms_score_threshold": 0.1, "nms_iou_threshold": 0.5, "y_scale": 10.0, "x_scale": 10.0,
    "h_scale": 5.0, "w_scale": 5.0,
}  # fmt: skip
test_refusal = refused(
    {
        "no_options": (
            changed(NODE, options={"custom_options": b""}),
            "custom options: no options",
        ),
        "damaged": (
            changed(NODE, options={"custom_options": b"\1\2\3"}),
            "custom options: options that are not a FlexBuffer map",
        ),
        "none": (
            changed(NODE, options=flexbuffer_of(**GOOD | {"max_detections": 0})),
            "detections or classes: there must be at least 1",
        ),
        "huge": (
            changed(NODE, options=flexbuffer_of(**GOOD | {"max_detections": 2**40})),
            "custom options: an integer is larger than 2^31",
        ),
        "overlap": (
            changed(NODE, options=flexbuffer_of(**GOOD | {"nms_iou_threshold": 1.5})),
            "nms_iou_threshold 1.5: only above 0, up to 1",
        ),
        "scale": (
            changed(NODE, options=flexbuffer_of(**GOOD | {"y_scale": 0.0})),
            "scales 0.0, 10.0, 5.0, 5.0: only from 2^-60 to 2^60",
        ),
        "several_of_each": (
            changed(
                NODE,
                options=flexbuffer_of(
                    **GOOD | {"use_regular_nms": True, "max_classes_per_detection": 2}
                ),
            ),
            "2 classes per box with regular NMS: only 1",
        ),
        "ties": (
            detector(dtype="uint8", is_regular=True),
            "uint8 scores by class: TFLite's order of ties depends on its library",
        ),
        "type": (retyped(NODE, "int8", [0]), "int8: only float32 and uint8"),
        "anchors_type": (
            retyped(NODE, "uint8", [0]),
            "uint8 codes, float32 anchors: they must be equal",
        ),
        "computed": (changed(NODE, 2, data=None), "anchors are not constant"),
        "negative": (
            changed(NODE, 2, data=-ANCHORS.data),
            "an anchor is not finite, or has a size below 0: TFLite fails",
        ),
        "anchors": (changed(NODE, 2, shape=(9, 4)), "output 9x4: the inputs give 40x4"),
        "codes": (changed(NODE, 0, shape=(1, 40, 3)), "codes 1x40x3: 1 x n x 4 or more are needed"),
        "scores": (changed(NODE, 1, shape=(1, 40, 6)), "scores 1x40x6: not of 3 classes"),
        "output": (changed(NODE, -1, shape=(1, 8, 4)), "output 1x8x4: the inputs give 1x5x4"),
        "many": (
            detector(count=100_000, most=99),
            "99 of 100000 boxes: too many for a work-item",
        ),
    }
)


# NON_MAX_SUPPRESSION


def suppressor(**changed_: Any) -> Node:
    """Return a node of 60 boxes."""
    made: Node = suppression(**{"count": 60, "most": 12, **changed_}).nodes[0]
    return made


def boxes_and_scores(count: int, seed: int = 0) -> list[Arrays]:
    """Return input sets with corners in any order, and scores that all differ."""
    rng = np.random.default_rng(seed)
    sets: list[Arrays] = []
    for size in (0.1, 0.6):
        boxes = drawn_boxes(rng, count, size)
        turned = rng.random(count) < 0.5
        boxes[turned] = boxes[turned][:, [2, 3, 0, 1]]
        scores = ((rng.permutation(count) + 1) / (count + 1)).astype(np.float32)
        sets.append([boxes, scores])
    return sets


@pytest.mark.parametrize("strategy", GROUPS, ids=str)
@pytest.mark.parametrize(
    "own",
    [
        {},
        {"least": 0.8},
        {"overlap": 0.0},
        {"sigma": 0.0},
        {"count": 1, "most": 1},
        {"count": 3, "most": 7},
        {"count": 1000, "most": 40},
    ],
    ids=str,
)
def test_suppression_is_tflite_s(
    own: dict[str, Any], strategy: Strategy, device: DeviceInfo
) -> None:
    node = suppressor(**own)
    model = chain_model([node], outputs=node.outputs)
    assert_exact_strategy(model, device, strategy, inputs=boxes_and_scores(own.get("count", 60)))


def test_a_box_without_an_area_is_chosen_again(device: DeviceInfo) -> None:
    # As TFLite does: nothing covers it, not even itself.
    node = suppressor(count=4, most=6)
    boxes = np.array([[0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 1, 0.9], [0, 0, 0.5, 0.5]], np.float32)
    scores = np.array([0.5, 0.9, 0.8, 0.7], np.float32)
    model = chain_model([node], outputs=node.outputs)
    assert_exact_strategy(model, device, SIMT, inputs=[[boxes, scores]])


@pytest.mark.parametrize("sigma", [0.1, 0.5, 2.0])
def test_scores_fall_beside_a_chosen_box(sigma: float, device: DeviceInfo) -> None:
    node = suppressor(sigma=sigma, overlap=1.0)
    model = chain_model([node], outputs=node.outputs)
    for given in boxes_and_scores(60):
        delegate = OpenCLDelegate(model, device=device.index, tune="off")
        ours, theirs = (invoke(interpreter(model, each), given) for each in (delegate, None))
        assert refusals(delegate) == {}
        assert_same(ours[0], theirs[0], "places")
        assert_close(ours[1], theirs[1], 4e-7, "scores")
        assert_same(ours[2], theirs[2], "count")


SUPPRESSOR = suppressor()
test_refused_suppression = refused(
    {
        "type": (retyped(SUPPRESSOR, "int8", [0]), "int8, float32"),
        "computed": (changed(SUPPRESSOR, 3, data=None), "limits are not constant"),
        "number": (changed(SUPPRESSOR, 2, data=None), "number: not constant"),
        "sigma": (suppressor(sigma=-1.0), "sigma -1.0: TFLite requires 0 or more"),
        "boxes": (changed(SUPPRESSOR, 0, shape=(60, 5)), "output 60x5: the inputs give 60x4"),
        "outputs": (changed(SUPPRESSOR, -1, shape=(11,)), "output 11: the inputs give 12"),
    },
    are_beginnings=True,
)


def nodes_of(dtype: str, channels: int, size: int) -> list[Node]:
    """Return this op's node of an 8-bit type, for the tests of all ops."""
    return [detector(dtype=dtype, overlap=1.0)] if dtype == "uint8" else []


NODES = {
    "TFLite_Detection_PostProcess": NODE,
    "TFLite_Detection_PostProcess regular": detector(is_regular=True),
    "NON_MAX_SUPPRESSION_V4": SUPPRESSOR,
    "NON_MAX_SUPPRESSION_V5": suppressor(sigma=0.5),
}
BUILT = [
    detector(dtype="uint8", has_background=True),
    detector(has_background=True),
    detector(is_regular=True),
]
