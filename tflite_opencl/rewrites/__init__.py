# SPDX-License-Identifier: Apache-2.0
"""Rewrites of models for other targets: the public names. They stand on delegate's reader."""

from tflite_opencl.rewrites.model import RewrittenModel, rewrite_model
from tflite_opencl.rewrites.notes import Note
from tflite_opencl.rewrites.registry import (
    Bundle,
    GraphPass,
    GraphSize,
    PassStep,
    graph_passes,
    pass_bundles,
    rewrite,
)

__all__ = [
    "Bundle",
    "GraphPass",
    "GraphSize",
    "Note",
    "PassStep",
    "RewrittenModel",
    "graph_passes",
    "pass_bundles",
    "rewrite",
    "rewrite_model",
]
