# SPDX-License-Identifier: Apache-2.0
"""Floats of 16 bits between the nodes of a partition."""
