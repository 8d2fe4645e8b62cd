# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression: TFLite_Detection_PostProcess and NON_MAX_SUPPRESSION_V4 and V5."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from delegate.inspect import Graph, Tensor, flexbuffer_of, output_shapes
from tflite_opencl.conformance.cases._rows import step
from tflite_opencl.models.build import Case, case, constant, graph, node, numbers, seeded, tensor

_POST = "TFLite_Detection_PostProcess"
_SIZES = (
    (1, 1, 1),
    (30, 3, 5),
    (200, 7, 10),
    (700, 20, 25),
    (1917, 90, 10),
)  # boxes, classes, maximum


def cases() -> Iterator[Case]:
    """Yield the cases of all of them: few boxes and as many as in a detector."""
    for kind, (count, classes, most), background in itertools.product(
        ("float32", "uint8"), _SIZES, (False, True)
    ):
        own: dict[str, Any] = {
            "count": count,
            "classes": classes,
            "most": most,
            "has_background": background,
        }
        detail = f"boxes{count}-classes{classes}-most{most}" + "-background" * background
        yield _post(kind, detail, **own)
        if kind == "float32":
            yield _post(kind, f"{detail}-each_class", **own, is_regular=True)
            yield _post(kind, f"{detail}-two_classes", **own, of_a_box=min(2, classes))
    for (count, _, most), overlap, least in itertools.product(_SIZES, (0.2, 0.5), (0.1, 0.9)):
        own = {"count": count, "most": most, "overlap": overlap, "least": least}
        detail = f"boxes{count}-most{most}-overlap{overlap:g}-least{least:g}"
        yield case("non_max_suppression_v4", "float32", detail, suppression, **own)
        for sigma in (0.0, 0.5):
            full = f"{detail}-sigma{sigma:g}"
            yield case("non_max_suppression_v5", "float32", full, suppression, **own, sigma=sigma)


def _post(kind: str, detail: str, **own: Any) -> Case:
    name = "detection_postprocess"
    return case(name, kind, detail, post_process, op=_POST, dtype=kind, **own)


def _boxes(shape: tuple[int, ...]) -> Any:
    """Return centers and sizes of boxes in a picture."""
    rng = seeded(shape)
    middle, size = rng.random((shape[0], 2)), rng.uniform(0.05, 0.4, (shape[0], 2))
    return np.concatenate([middle, size], axis=1).astype(np.float32)


def post_process(
    count: int,
    classes: int,
    most: int,
    dtype: str = "float32",
    code_length: int = 4,
    has_background: bool = False,
    least: float = 0.01,
    overlap: float = 0.5,
    of_a_box: int = 1,
    is_regular: bool = False,
    of_a_class: int = 100,
) -> Graph:
    """Return a model of a detector's last node."""
    values, columns = _boxes((count, 4)), classes + has_background
    codes, scores = tensor((1, count, code_length)), tensor((1, count, columns))
    anchors = constant(values)
    if dtype == "uint8":
        codes = tensor(codes.shape, dtype, 0.06, 131)
        scores = tensor(scores.shape, dtype, 1 / 256, 0)
        anchors = constant(np.round(values * 200).astype(np.uint8), 1 / 200, 0)
    if not is_regular:
        # TFLite leaves unused rows uninitialised, so there are always enough boxes.
        least, most = -1e30, min(most, count // 8 or 1)
        overlap = overlap if count > 8 * most else 1.0
    options = flexbuffer_of(
        max_detections=most,
        max_classes_per_detection=of_a_box,
        detections_per_class=of_a_class,
        use_regular_nms=is_regular,
        nms_score_threshold=least,
        nms_iou_threshold=overlap,
        num_classes=classes,
        y_scale=10.0,
        x_scale=10.0,
        h_scale=5.0,
        w_scale=5.0,
    )
    outputs = [tensor((1, most)) for _ in range(4)]
    rough = node(_POST, [codes, scores, anchors], outputs, options, is_custom=True)
    shapes = output_shapes(rough)
    assert shapes is not None
    found = [tensor(shape) for shape in shapes]
    return graph([node(_POST, rough.inputs, found, options, is_custom=True)])


def suppression(
    count: int,
    most: int,
    overlap: float = 0.5,
    least: float = 0.1,
    sigma: float | None = None,
) -> Graph:
    """Return a non-maximum suppression model, of V5 if there is a sigma."""
    limits: list[Tensor] = [constant(np.float32(value)) for value in (overlap, least)]
    outputs = [tensor((1,), "int32"), tensor((), "int32")]
    version = 4
    if sigma is not None:
        limits.append(constant(np.float32(sigma)))
        outputs.insert(1, tensor((1,)))
        version = 5
    inputs = [tensor((count, 4)), tensor((count,)), numbers(most), *limits]
    return graph([step(f"NON_MAX_SUPPRESSION_V{version}", inputs, outputs)])
