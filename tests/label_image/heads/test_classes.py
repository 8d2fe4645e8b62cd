# SPDX-License-Identifier: Apache-2.0
"""Which outputs are scores of classes, an embedding or a mask, and what they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from delegate.inspect import Tensor, read_model
from label_image.embedded_metadata import EmbeddedMetadata
from label_image.heads.view import View
from label_image.scene import Class
from tests.support.model import chain_model, const, op, t
from tests.support.views import name_of, scene_of, scene_of_arrays, view_of

PICTURE = t((1, 4, 4, 3), "uint8", 0.5)

KINDS: list[tuple[str, list[Tensor], Tensor, bool, bool]] = [
    # outputs, the input fed, surely scores, scores with as many labels as the last size
    ("a-row", [t((1, 3), "uint8", 0.5)], PICTURE, True, True),
    ("without-a-scale", [t((1, 3), "uint8")], PICTURE, True, True),
    ("one-dimension", [t((3,))], PICTURE, True, True),
    ("a-row-a-picture", [t((2, 3))], PICTURE, True, True),
    ("four-dimensions", [t((1, 1, 1, 3), "int8", 0.5)], PICTURE, True, True),
    ("int16", [t((1, 3), "int16", 0.5)], PICTURE, True, True),
    ("int16-without-a-scale", [t((1, 3), "int16")], PICTURE, False, False),
    ("of-tokens", [t((1, 3), "int8", 0.5)], t((1, 9), "int32"), True, True),
    ("of-tokens-without-a-scale", [t((1, 3), "int8")], t((1, 9), "int32"), False, False),
    ("classes", [t((1, 3), "int64")], PICTURE, False, False),
    ("truth-values", [t((1, 3), "bool")], PICTURE, False, False),
    ("one-value", [t((1, 1))], PICTURE, False, False),
    ("scalar", [t(())], PICTURE, False, False),
    ("empty", [t((1, 0))], PICTURE, False, False),
    ("a-map", [t((1, 4, 4, 3), "uint8", 0.5)], PICTURE, False, False),
    ("keypoints", [t((1, 1, 17, 3))], PICTURE, False, False),
    ("autoencoder", [t((1, 3))], t((1, 3)), False, True),
    ("the-first-of-two", [t((1, 3)), t((1, 8))], PICTURE, False, True),
    ("a-detector", [t((1, 10, 4)), t((1, 10)), t((1, 10)), t((1,))], PICTURE, False, False),
]


@pytest.mark.parametrize(
    ("outputs", "fed", "surely", "labelled"),
    [case[1:] for case in KINDS],
    ids=[case[0] for case in KINDS],
)
def test_scores_are_a_row_of_numbers(
    outputs: list[Tensor], fed: Tensor, surely: bool, labelled: bool
) -> None:
    view = view_of(outputs, fed)
    assert (name_of(view) == "classification") == surely
    last = outputs[0].shape[-1] if outputs[0].shape else 1
    labelled_view = view_of(outputs, fed, labels=["a"] * last)
    assert (name_of(labelled_view) == "classification") == labelled
    assert (name_of(view, "classification") == "classification") == labelled


def test_rows_are_the_best_first() -> None:
    scene = scene_of_arrays(np.array([[0.25, 0.75, 0]], np.float32))
    assert scene.rows == [Class("1", 0.75, 1), Class("0", 0.25, 0)]


DECODED = [
    (t((1, 2), "uint8", 0.25, 1), np.array([[3, 1]], np.uint8), "float32", [0.5]),
    (t((1, 2), "int8", 0.25, -1), np.array([[1, -1]], np.int8), "uint8", [0.5]),
    (t((1, 2), "uint8", 0.25, 1), np.array([[51, 0]], np.uint8), "uint8", [0.2]),  # label_image's
    (t((1, 2), "uint8"), np.array([[51, 0]], np.uint8), "int8", [0.69921875, 0.5]),
    (t((1, 2)), np.array([[0.5, 0]], np.float32), "uint8", [0.5]),
]


@pytest.mark.parametrize(("output", "values", "fed", "scores"), DECODED)
def test_an_output_of_another_type_than_the_input_is_decoded_by_its_own_numbers(
    output: Tensor, values: NDArray[Any], fed: str, scores: list[float]
) -> None:
    view = view_of([output], t((1, 8, 8, 3), fed), last="SOFTMAX")
    found = scene_of(view, values).rows or ()
    assert [row.score for row in found] == pytest.approx(scores)


FEATURES = np.array([[0.6, -0.8]], np.float32)
LOGITS = np.array([[3, -4]], np.float32)


@pytest.mark.parametrize("op_name", ["L2_NORMALIZATION", "MEAN", "AVERAGE_POOL_2D"])
def test_the_last_op_says_that_it_is_an_embedding(op_name: str) -> None:
    view = view_of([t((1, 2))], last=op_name)
    assert name_of(view) == "embedding"
    assert name_of(view_of([t((1, 2))], last=op_name, labels=["a", "b"])) == "classification"
    assert name_of(view, "classification") == "classification"
    assert np.array_equal(scene_of(view, LOGITS).embedding, LOGITS[0])


@pytest.mark.parametrize("how", ["MUL", "DIV"])
def test_a_norm_that_is_computed_by_hand_says_it_too(how: str) -> None:
    fed, squared, total = t((1, 2)), t((1, 2)), t((1, 1))
    root, result, flat = t((1, 1)), t((1, 2)), t((2,))
    least, wide = t((1, 1)), t((1, 2))
    ends = {
        "MUL": [op("RSQRT", [total], [root]), op("MUL", [fed, root], [result])],
        "DIV": [
            op("SQRT", [total], [root]),
            op("MAXIMUM", [root, const(np.float32([1e-12]))], [least]),
            op("BROADCAST_TO", [least, const(np.int32([1, 2]))], [wide]),
            op("DIV", [fed, wide], [result]),
        ],
    }
    nodes = [
        op("SQUARE", [fed], [squared]),
        op("SUM", [squared, const(np.ones(1, np.int32))], [total], {"keep_dims": True}),
        *ends[how],
        op("RESHAPE", [result], [flat], {"new_shape": [2]}),
    ]
    graph = read_model(chain_model(nodes))
    picture = t((1, 8, 8, 3), "uint8", 0.5)
    assert name_of(View(graph, graph.outputs, picture)) == "embedding"


def test_metadata_says_it_too() -> None:
    view = view_of([t((1, 2))], embedded=EmbeddedMetadata(outputs=["feature_vector"]))
    assert name_of(view) == "embedding"


@pytest.mark.parametrize("task", [None, "classification", "embedding"])
def test_the_values_of_a_run_never_say_it(task: str | None) -> None:
    for values in (FEATURES, LOGITS):  # the first have an L2 norm of 1
        scene = scene_of_arrays(values, task=task)
        assert (scene.embedding is not None) == (task == "embedding")
        assert (scene.rows is not None) == (task != "embedding")


WIDE = t((1, 64, 32, 3), "uint8", 0.5, 0)
MASKS = [
    ("a class a pixel", t((1, 64, 32), "int64"), True),
    ("with a last axis", t((1, 64, 32, 1), "int32"), True),
    ("scores a pixel", t((1, 64, 32, 21)), True),
    ("smaller scores", t((1, 8, 4, 21), "uint8", 0.5), True),
    ("features", t((1, 2, 2, 1280)), False),
    ("a depth map", t((1, 64, 32, 1)), False),
    ("a quantised plane", t((1, 64, 32, 1), "uint8", 0.5), False),
    ("a picture", t((1, 64, 32, 3)), False),
    ("a row of scores", t((1, 1001)), False),
    ("keypoints", t((1, 1, 17, 3)), False),
    ("two at once", t((2, 64, 32), "int32"), False),
    ("truth values", t((1, 64, 32), "bool"), False),
]


@pytest.mark.parametrize(("output", "expected"), [m[1:] for m in MASKS], ids=[m[0] for m in MASKS])
def test_which_outputs_are_masks(output: Tensor, expected: bool) -> None:
    def is_mask(*outputs: Tensor, fed: Tensor = WIDE) -> bool:
        return name_of(view_of(outputs, fed)) == "segmentation"

    assert is_mask(output) == expected
    assert not is_mask(output, output)
    assert not is_mask(output, fed=t((1, 640)))


def test_three_channels_are_classes_where_labels_are_given() -> None:
    colours = [t((1, 64, 32, 3))]
    assert name_of(view_of(colours, WIDE, are_labels_given=True)) == "segmentation"
    assert name_of(view_of(colours, WIDE), "segmentation") == "segmentation"


def test_a_pixel_s_class_is_that_of_its_best_score() -> None:
    scores = np.zeros((1, 4, 2, 5), np.int8)
    scores[..., 0], scores[0, :1, :, 3] = 1, 2
    mask = scene_of_arrays(scores, fed=t((1, 8, 4, 3), "uint8")).mask
    assert mask is not None
    assert mask.classes.tolist() == [[3, 3], [0, 0], [0, 0], [0, 0]]
