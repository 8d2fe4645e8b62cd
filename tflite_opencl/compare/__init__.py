# SPDX-License-Identifier: Apache-2.0
"""Paths of a model side by side: each in a process of its own, in turns."""
