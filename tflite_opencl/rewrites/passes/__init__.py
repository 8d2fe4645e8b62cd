# SPDX-License-Identifier: Apache-2.0
"""Rewrites of a graph, one a file."""
