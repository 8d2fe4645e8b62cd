# SPDX-License-Identifier: Apache-2.0
"""Rewrites of a graph, one a file; those of a partition, which run by default, in a folder."""

from delegate.passes.registry import rewrite

__all__ = ["rewrite"]
