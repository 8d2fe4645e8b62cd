# SPDX-License-Identifier: Apache-2.0
"""Displays a model's graph, as a table and as an HTML page."""
