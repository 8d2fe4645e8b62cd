# SPDX-License-Identifier: Apache-2.0
"""Shapes of ops that select boxes: as many as requested, however many there are.

Source: tflite/kernels/non_max_suppression.cc, detection_postprocess.cc
"""

from __future__ import annotations

from delegate.graph.flexbuffer import numbers_in
from delegate.graph.ir import Node
from delegate.graph.shapes.rule import Shape, integer, outputs


@outputs("NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5")
def _non_max_suppression(node: Node) -> list[Shape]:
    is_soft = node.op == "NON_MAX_SUPPRESSION_V5"
    return [(integer(node, 2),)] * (1 + is_soft) + [()]


@outputs("TFLite_Detection_PostProcess", is_custom=True)
def _detection_postprocess(node: Node) -> list[Shape]:
    options = numbers_in(node.options)
    count = int(options["max_detections"]) * int(options["max_classes_per_detection"])
    return [(1, count, 4), (1, count), (1, count), (1,)]
