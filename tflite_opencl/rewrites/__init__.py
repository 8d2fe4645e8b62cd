# SPDX-License-Identifier: Apache-2.0
"""Public API of the passes that rewrite .tflite models for other targets."""

from tflite_opencl.rewrites.changes import Note
from tflite_opencl.rewrites.registry import (
    Bundle,
    GraphPass,
    GraphSize,
    PassStep,
    graph_passes,
    pass_bundles,
    rewrite,
)
from tflite_opencl.rewrites.rewriting import RewrittenModel, rewrite_model

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
