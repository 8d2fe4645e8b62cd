# SPDX-License-Identifier: Apache-2.0
"""NON_MAX_SUPPRESSION_V4 and V5, and TFLite_Detection_PostProcess.

A work-group selects the boxes of a class one by one. In each round its work-items share the
remaining boxes: they suppress those that the last selection overlaps, and find the next best.
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
from delegate.ops._launches.choice import FILE, BoxScores, Selection, quantisation, types_of
from delegate.ops._launches.tiles import MOST_ROUNDS, over_elements
from delegate.ops._launches.types import ELEM
from delegate.ops._numbers import bits
from delegate.ops._registry import lowers
from delegate.target import Target

_POWERS = 256  # of 2, from 1 to 2: table of the exponential in detections.cl
_NAN = bits(math.nan)


@lowers("NON_MAX_SUPPRESSION_V4", floats=EXACT)
@lowers("NON_MAX_SUPPRESSION_V5", floats=roundings(Growth.STEADY, 16))
def lower_non_max_suppression(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Select the boxes with the highest scores that no selected box overlaps; ties go to the first.

    With V5's sigma, overlapping boxes lose score in proportion to the overlap (soft NMS).

    Shapes:
        boxes (n, 4), scores (n,), number, max overlap, min score[, sigma]
        -> indices (number,)[, scores (number,)], count (); padded with zeros
    Raises:
        Unsupported: other types, non-constant limits, too many boxes for a work-item.
    Source: tflite/kernels/non_max_suppression.cc
    """
    is_soft = node.op == "NON_MAX_SUPPRESSION_V5"
    (boxes, scores, number_tensor, *limits), _ = inputs_of(node.inputs, 5 + is_soft)
    if len(node.outputs) != 2 + is_soft:
        raise Unsupported(f"{len(node.outputs)} outputs: {2 + is_soft} are expected")
    indices, *soft, count = node.outputs
    floats = [boxes, scores, *limits, *soft]
    dtypes = [*(each.dtype for each in floats), indices.dtype, count.dtype]
    if dtypes != ["float32"] * len(floats) + ["int32"] * 2:
        raise Unsupported(f"{', '.join(dtypes)}: only floats, and int32 indices")
    require_shape(scores, boxes.shape[:1])
    require_shape(boxes, (*boxes.shape[:1], 4))
    most, elements = scalar_of(number_tensor, "number"), elements_of(scores)
    overlap, least, *sigma = [_float_of(each) for each in limits]
    if sigma and not sigma[0] >= 0:
        raise Unsupported(f"sigma {sigma[0]}: TFLite requires 0 or more")
    for tensor, shape in ((indices, (most,)), (count, ()), *((each, (most,)) for each in soft)):
        require_shape(tensor, shape)
        elements_of(tensor)
    has_decay = bool(sigma) and sigma[0] > 0
    decay = np.float32(-0.5) / np.float32(sigma[0]) if has_decay else np.float32(0)
    params: Params = {"corners": boxes, "most_overlap": bits(overlap), "decay": bits(float(decay))}
    selection = BoxScores(scores, elements, most, least=bits(least), absent=0)
    outputs = (indices, soft[0] if soft else temporary("found", (most,), "float32"), count)
    defines: Defines = {"IS_STRICT": 0, "SUPPRESSES": 1, "IS_SOFT": int(has_decay)}
    return (Alternative("plain", (selection.launch(outputs, params, defines, target),)),)


def _float_of(tensor: Tensor) -> float:
    values = require_constant(tensor, "limits")
    if values.size != 1:
        raise Unsupported(f"a limit of shape {shape_text(tensor)}: one number is needed")
    return float(values.ravel()[0])


@dataclass(frozen=True, slots=True)
class _Options:
    """Checked options of TFLite_Detection_PostProcess."""

    most: int
    per_box: int  # classes
    per_class: int  # boxes, with regular NMS
    is_regular: bool
    classes: int
    least: float
    overlap: float
    scales: tuple[float, ...]  # of y, x, h and w


def _options_of(node: Node) -> _Options:
    """Return a node's options.

    Raises:
        Unsupported: missing or malformed options, or values that TFLite fails on.
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
    options = _Options(
        most=int(values.get("max_detections", 0)),
        per_box=int(values.get("max_classes_per_detection", 0)),
        per_class=int(values.get("detections_per_class", 100)),
        is_regular=bool(values.get("use_regular_nms", 0)),
        classes=int(values.get("num_classes", 0)),
        least=least,
        overlap=overlap,
        scales=tuple(scales),
    )
    if min(options.most, options.per_box, options.per_class, options.classes) < 1:
        raise Unsupported("detections or classes: there must be at least 1")
    if options.is_regular and options.per_box != 1:
        raise Unsupported(f"{options.per_box} classes per box with regular NMS: only 1")
    if not 0 < overlap <= 1:
        raise Unsupported(f"nms_iou_threshold {overlap}: only above 0, up to 1")
    if not all(2.0**-60 < scale < 2.0**60 for scale in scales):
        raise Unsupported(f"scales {', '.join(map(str, scales))}: only from 2^-60 to 2^60")
    return options


@lowers("TFLite_Detection_PostProcess", floats=roundings(Growth.STEADY, 4), is_custom=True)
def lower_detection_postprocess(node: Node, target: Target) -> tuple[Alternative, ...]:
    """Decode boxes, select across classes or (regular NMS) within each class, and return the best.

    Ties go to the first box. With regular NMS, or several classes per box, TFLite's order of equal
    scores depends on its C++ library.

    Shapes:
        codes (1, n, 4 or more), scores (1, n, classes or background and classes), anchors (n, 4)
        -> boxes (1, m, 4), classes (1, m), scores (1, m), number (1,)
    Raises:
        Unsupported: other types, non-constant anchors, options that TFLite fails on.
    Source: tflite/kernels/detection_postprocess.cc
    """
    (codes, scores, anchors), _ = inputs_of(node.inputs, 3)
    options = _options_of(node)
    _check(codes, scores, anchors, options)
    slots = options.most * options.per_box
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
    select = _within_class if options.is_regular else _overall
    launches += select(node, corners, options, target)
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
    if scores.dtype == "uint8" and (options.is_regular or options.per_box > 1):
        raise Unsupported("uint8 scores by class: TFLite's order of ties depends on its library")
    if options.per_box * scores.shape[2] > MOST_ROUNDS // 2:
        raise Unsupported(f"{options.per_box} of {scores.shape[2]} classes: too many")


def _boxes(
    codes: Tensor, anchors: Tensor, corners: Tensor, options: _Options, target: Target
) -> Launch:
    values = np.asarray(require_constant(anchors, "anchors"), np.float32)
    if anchors.dtype == "uint8":
        scale, zero = per_tensor(anchors)
        values = (values - np.float32(zero)) * np.float32(scale)
    if not (np.isfinite(values).all() and (values[:, 2:] >= 0).all()):
        raise Unsupported("an anchor is not finite, or has a size below 0: TFLite fails")
    inverses = _split_doubles(1.0 / np.array(options.scales, np.float64))
    powers = _split_doubles(np.exp2(np.arange(_POWERS) / _POWERS))
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


def _split_doubles(values: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return each double as the sum of two floats."""
    high = values.astype(np.float32)
    return np.stack([high, (values - high).astype(np.float32)], axis=1)


def _overall(node: Node, corners: Tensor, options: _Options, target: Target) -> list[Launch]:
    """Return the launches that select among all boxes by their best class."""
    scores = node.inputs[1]
    assert scores is not None
    count = scores.shape[1]
    fields: Params = {
        "scores": scores,
        "stride": scores.shape[2],
        "first": scores.shape[2] - options.classes,
        "classes": options.classes,
        **quantisation(scores, "score"),
    }
    best = temporary("best", (count,), "float32")
    params = fields | {"best_output": best}
    best_classes = over_elements(FILE, "detections_best", count, target, params, types_of(scores))
    selection = BoxScores(best, count, options.most, bits(options.least), _NAN)
    selected = _selected("", 1, options.most)
    overlap: Params = {"corners": corners, "most_overlap": bits(options.overlap)}
    defines: Defines = {"IS_STRICT": 1, "SUPPRESSES": 1, "IS_SOFT": 0}
    return [
        best_classes,
        selection.launch(selected, overlap, defines, target),
        _output(node, corners, selected, fields | {"of_a_box": options.per_box}, target),
    ]


def _within_class(node: Node, corners: Tensor, options: _Options, target: Target) -> list[Launch]:
    """Return the launches that select boxes within each class, then among all selected ones."""
    scores = node.inputs[1]
    assert scores is not None
    most = min(options.per_class, options.most)  # more per class cannot be among the best
    by_class = BoxScores(
        scores,
        scores.shape[1],
        most,
        bits(options.least),
        _NAN,
        options.classes,
        stride=scores.shape[2],
        first=scores.shape[2] - options.classes,
    )
    picks = _selected(" of classes", options.classes, most)
    overlap: Params = {"corners": corners, "most_overlap": bits(options.overlap)}
    defines: Defines = {"IS_STRICT": 1, "SUPPRESSES": 1, "IS_SOFT": 0}
    merged = BoxScores(picks[1], options.classes * most, options.most, bits(-math.inf), _NAN)
    selected = _selected("", 1, options.most)
    places: Params = {"of_classes": picks[0], "most": most}
    return [
        by_class.launch(picks, overlap, defines, target),
        merged.launch(selected, {}, {"IS_STRICT": 1, "SUPPRESSES": 0, "IS_SOFT": 0}, target),
        _output(node, corners, selected, places | {"found": selected[1]}, target),
    ]


def _selected(name: str, classes: int, most: int) -> Selection:
    """Return the tensors of a selection: indices, scores and counts."""
    return (
        temporary(f"places{name}", (classes, most), "int32"),
        temporary(f"found{name}", (classes, most), "float32"),
        temporary(f"count{name}", (classes,), "int32"),
    )


def _output(node: Node, corners: Tensor, picks: Selection, extra: Params, target: Target) -> Launch:
    boxes, classes, scores, number = node.outputs
    params = extra | {
        "corners": corners,
        "places": picks[0],
        "count": picks[2],
        "boxes_output": boxes,
        "classes_output": classes,
        "scores_output": scores,
        "number_output": number,
    }
    scores_input = node.inputs[1]
    assert scores_input is not None
    defines: Defines = {"IS_REGULAR": int("found" in extra), **types_of(scores_input)}
    slots = math.prod(scores.shape)
    return over_elements(FILE, "detections_output", slots, target, params, defines)
