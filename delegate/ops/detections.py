# SPDX-License-Identifier: Apache-2.0
"""NON_MAX_SUPPRESSION_V4 and V5, and TFLite_Detection_PostProcess: the boxes that a picture has.

One work-group chooses the boxes of a class one after the other, and its work-items look at all
others meanwhile: which one is next, and which does the last one cover?
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from delegate.errors import Unsupported
from delegate.graph.flexbuffer import numbers_in
from delegate.graph.float_results import EXACT, Growth, roundings
from delegate.graph.ir import Node, Tensor
from delegate.launch import Alternative, Constant, Defines, Launch, Params, temporary
from delegate.ops._checks.node import (
    elements_of,
    inputs_of,
    require_constant,
    require_shape,
    scalar_of,
    shape_text,
)
from delegate.ops._checks.quantized import per_tensor
from delegate.ops._launches.choice import FILE, BoxScores, Chosen, quantisation, types_of
from delegate.ops._launches.tiles import MOST_ROUNDS, over_elements
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import bits
from delegate.ops._registry import lowers
from delegate.target import Target

_POWERS = 256  # of 2, from 1 to 2, that detections.cl's exponential begins with
_NAN = bits(math.nan)


@lowers("NON_MAX_SUPPRESSION_V4", floats=EXACT)
@lowers("NON_MAX_SUPPRESSION_V5", floats=roundings(Growth.STEADY, 16))
def lower_non_max_suppression(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Choose boxes of high scores that no chosen box covers; of equal scores the first.

    V5 has a sigma: beside a chosen box others lose score, the more the closer they are.

    Shapes:
        boxes (n, 4), scores (n,), number, most overlap, least score[, sigma]
        -> indices (number,)[, scores (number,)], count (); zeros behind the last one
    Raises:
        Unsupported: other types, computed limits, more boxes than a work-item's loops have rounds.
    Source: tflite/kernels/non_max_suppression.cc
    """
    is_soft = node.op == "NON_MAX_SUPPRESSION_V5"
    (boxes, scores, most_of, *limits), _ = inputs_of(node.inputs, 5 + is_soft)
    if len(node.outputs) != 2 + is_soft:
        raise Unsupported(f"{len(node.outputs)} outputs: {2 + is_soft} are expected")
    indices, *left, count = node.outputs
    floats = [boxes, scores, *limits, *left]
    found = [*(each.dtype for each in floats), indices.dtype, count.dtype]
    if found != ["float32"] * len(floats) + ["int32"] * 2:
        raise Unsupported(f"{', '.join(found)}: only floats, and int32 indices")
    require_shape(scores, boxes.shape[:1])
    require_shape(boxes, (*boxes.shape[:1], 4))
    most, elements = scalar_of(most_of, "number"), elements_of(scores)
    overlap, least, *sigma = [_float_of(each) for each in limits]
    if sigma and not sigma[0] >= 0:
        raise Unsupported(f"sigma {sigma[0]}: TFLite takes none below 0")
    for tensor, shape in ((indices, (most,)), (count, ()), *((each, (most,)) for each in left)):
        require_shape(tensor, shape)
        elements_of(tensor)
    has_decay = bool(sigma) and sigma[0] > 0
    decay = np.float32(-0.5) / np.float32(sigma[0]) if has_decay else np.float32(0)
    params: Params = {"corners": boxes, "most_overlap": bits(overlap), "decay": bits(float(decay))}
    choice = BoxScores(scores, elements, most, least=bits(least), absent=0)
    kept = (indices, left[0] if left else temporary("found", (most,), "float32"), count)
    defines: Defines = {"IS_STRICT": 0, "SUPPRESSES": 1, "IS_SOFT": int(has_decay)}
    return (Alternative("plain", (choice.launch(kept, params, defines, target),)),)


def _float_of(tensor: Tensor) -> float:
    values = require_constant(tensor, "limits")
    if values.size != 1:
        raise Unsupported(f"a limit of shape {shape_text(tensor)}: one number is needed")
    return float(values.ravel()[0])


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of TFLite_Detection_PostProcess that it is right to run with."""

    most: int
    of_a_box: int  # classes that a box is given with
    of_a_class: int  # boxes, where each class chooses its own
    is_regular: bool
    classes: int
    least: float
    overlap: float
    scales: tuple[float, ...]  # of y, x, h and w


def _options_of(node: Node) -> _Options:
    """Return a node's options.

    Raises:
        Unsupported: they are missing, or TFLite fails with them.
    """
    try:
        values = numbers_in(node.options)
    except ValueError as error:
        raise Unsupported(f"custom options: {error}") from None
    if any(isinstance(value, int) and abs(value) >= 2**31 for value in values.values()):
        raise Unsupported("custom options: an integer is larger than 2^31")
    values = {name: value for name, value in values.items() if math.isfinite(value)}
    reals = ("nms_score_threshold", "nms_iou_threshold", "y_scale", "x_scale", "h_scale", "w_scale")
    least, overlap, *scales = [float(np.float32(values.get(name, 0.0))) for name in reals]
    found = _Options(
        most=int(values.get("max_detections", 0)),
        of_a_box=int(values.get("max_classes_per_detection", 0)),
        of_a_class=int(values.get("detections_per_class", 100)),
        is_regular=bool(values.get("use_regular_nms", 0)),
        classes=int(values.get("num_classes", 0)),
        least=least,
        overlap=overlap,
        scales=tuple(scales),
    )
    if min(found.most, found.of_a_box, found.of_a_class, found.classes) < 1:
        raise Unsupported("detections or classes: there must be at least 1")
    if found.is_regular and found.of_a_box != 1:
        raise Unsupported(f"{found.of_a_box} classes a box where each class has its own: only 1")
    if not 0 < overlap <= 1:
        raise Unsupported(f"nms_iou_threshold {overlap}: only above 0, up to 1")
    if not all(2.0**-60 < scale < 2.0**60 for scale in scales):
        raise Unsupported(f"scales {', '.join(map(str, scales))}: only from 2^-60 to 2^60")
    return found


@lowers("TFLite_Detection_PostProcess", floats=roundings(Growth.STEADY, 4), is_custom=True)
def lower_detection_postprocess(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Decode boxes, choose those of the best classes or of each class, and give the best.

    Of equal scores the first box comes first; where each class chooses, or a box has several
    classes, TFLite's order of equal scores is its C++ library's.

    Shapes:
        codes (1, n, 4 or more), scores (1, n, classes and at most one before them), anchors (n, 4)
        -> boxes (1, m, 4), classes (1, m), scores (1, m), number (1,)
    Raises:
        Unsupported: other types, computed anchors, options that TFLite fails with.
    Source: tflite/kernels/detection_postprocess.cc
    """
    (codes, scores, anchors), _ = inputs_of(node.inputs, 3)
    options = _options_of(node)
    _check(codes, scores, anchors, options)
    slots = options.most * options.of_a_box
    shapes = ((1, slots, 4), (1, slots), (1, slots), (1,))
    if len(node.outputs) != len(shapes):
        raise Unsupported(f"{len(node.outputs)} outputs: {len(shapes)} are expected")
    for result, shape in zip(node.outputs, shapes, strict=True):
        if result.dtype != "float32":
            raise Unsupported(f"{result.dtype} outputs: only float32")
        require_shape(result, shape)
        elements_of(result)
    corners = temporary("corners", (codes.shape[1], 4), "float32")
    launches = [_boxes(codes, anchors, corners, options, target)]
    rest = _of_classes if options.is_regular else _of_best
    launches += rest(node, corners, options, target)
    return (Alternative("plain", tuple(launches)),)


def _check(codes: Tensor, scores: Tensor, anchors: Tensor, options: _Options) -> None:
    for tensor in (codes, scores, anchors):
        if tensor.dtype not in ("float32", "uint8"):
            raise Unsupported(f"{tensor.dtype}: only float32 and uint8")
        elements_of(tensor)
    if codes.dtype != anchors.dtype:
        raise Unsupported(f"{codes.dtype} codes, {anchors.dtype} anchors: they must be equal")
    count = codes.shape[1] if len(codes.shape) == 3 else 0
    if len(codes.shape) != 3 or codes.shape[0] != 1 or codes.shape[2] < 4:
        raise Unsupported(f"codes {shape_text(codes)}: 1 x n x 4 or more are needed")
    require_shape(anchors, (count, 4))
    if scores.shape not in ((1, count, options.classes), (1, count, options.classes + 1)):
        raise Unsupported(f"scores {shape_text(scores)}: not of {options.classes} classes")
    if scores.dtype == "uint8" and (options.is_regular or options.of_a_box > 1):
        raise Unsupported("uint8 scores by class: TFLite's order of equal ones is its library's")
    if options.of_a_box * scores.shape[2] > MOST_ROUNDS // 2:
        raise Unsupported(f"{options.of_a_box} of {scores.shape[2]} classes: too many")


def _boxes(
    codes: Tensor, anchors: Tensor, corners: Tensor, options: _Options, target: Target
) -> Launch:
    values = np.asarray(require_constant(anchors, "anchors"), np.float32)
    if anchors.dtype == "uint8":
        scale, zero = per_tensor(anchors)
        values = (values - np.float32(zero)) * np.float32(scale)
    if not (np.isfinite(values).all() and (values[:, 2:] >= 0).all()):
        raise Unsupported("an anchor is not finite, or has a size below 0: TFLite fails")
    inverses = _pairs(1.0 / np.array(options.scales, np.float64))
    powers = _pairs(np.exp2(np.arange(_POWERS) / _POWERS))
    params: Params = {
        "codes": codes,
        "code_length": codes.shape[2],
        **quantisation(codes, "code"),
        "anchors": Constant(values.nbytes, lambda: values),
        "inverses": Constant(inverses.nbytes, lambda: inverses),
        "powers": Constant(powers.nbytes, lambda: powers),
        "boxes_output": corners,
    }
    defines: Defines = {"CODE_ELEM": ELEM[codes.dtype], "IS_CODED": int(codes.dtype == "uint8")}
    count = codes.shape[1]
    return over_elements(FILE, "detections_boxes", count, target, params, defines)


def _pairs(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return each number as a float and what that lacks of it."""
    high = values.astype(np.float32)
    return np.stack([high, (values - high).astype(np.float32)], axis=1)


def _of_best(node: Node, corners: Tensor, options: _Options, target: Target) -> list[Launch]:
    """Return the launches that let all boxes compete by their best class."""
    scores = node.inputs[1]
    assert scores is not None
    count = scores.shape[1]
    own: Params = {
        "scores": scores,
        "stride": scores.shape[2],
        "first": scores.shape[2] - options.classes,
        "classes": options.classes,
        **quantisation(scores, "score"),
    }
    best = temporary("best", (count,), "float32")
    params = own | {"best_output": best}
    first = over_elements(FILE, "detections_best", count, target, params, types_of(scores))
    choice = BoxScores(best, count, options.most, bits(options.least), _NAN)
    chosen = _chosen("", 1, options.most)
    overlap: Params = {"corners": corners, "most_overlap": bits(options.overlap)}
    defines: Defines = {"IS_STRICT": 1, "SUPPRESSES": 1, "IS_SOFT": 0}
    return [
        first,
        choice.launch(chosen, overlap, defines, target),
        _output(node, corners, chosen, own | {"of_a_box": options.of_a_box}, target),
    ]


def _of_classes(node: Node, corners: Tensor, options: _Options, target: Target) -> list[Launch]:
    """Return the launches that let the boxes of each class compete, and then all those chosen."""
    scores = node.inputs[1]
    assert scores is not None
    most = min(options.of_a_class, options.most)  # more of a class cannot be among the best
    own = BoxScores(
        scores,
        scores.shape[1],
        most,
        bits(options.least),
        _NAN,
        options.classes,
        stride=scores.shape[2],
        first=scores.shape[2] - options.classes,
    )
    of_classes = _chosen(" of classes", options.classes, most)
    overlap: Params = {"corners": corners, "most_overlap": bits(options.overlap)}
    defines: Defines = {"IS_STRICT": 1, "SUPPRESSES": 1, "IS_SOFT": 0}
    merged = BoxScores(of_classes[1], options.classes * most, options.most, bits(-math.inf), _NAN)
    chosen = _chosen("", 1, options.most)
    places: Params = {"of_classes": of_classes[0], "most": most}
    return [
        own.launch(of_classes, overlap, defines, target),
        merged.launch(chosen, {}, {"IS_STRICT": 1, "SUPPRESSES": 0, "IS_SOFT": 0}, target),
        _output(node, corners, chosen, places | {"found": chosen[1]}, target),
    ]


def _chosen(name: str, classes: int, most: int) -> Chosen:
    """Return the tensors of what is chosen: places, their scores, and how many."""
    return (
        temporary(f"places{name}", (classes, most), "int32"),
        temporary(f"found{name}", (classes, most), "float32"),
        temporary(f"count{name}", (classes,), "int32"),
    )


def _output(node: Node, corners: Tensor, chosen: Chosen, own: Params, target: Target) -> Launch:
    boxes, classes, scores, number = node.outputs
    params = own | {
        "corners": corners,
        "places": chosen[0],
        "count": chosen[2],
        "boxes_output": boxes,
        "classes_output": classes,
        "scores_output": scores,
        "number_output": number,
    }
    given = node.inputs[1]
    assert given is not None
    defines: Defines = {"IS_REGULAR": int("found" in own), **types_of(given)}
    slots = math.prod(scores.shape)
    return over_elements(FILE, "detections_output", slots, target, params, defines)
