# SPDX-License-Identifier: Apache-2.0
"""Compares the ways to run a model: each in a process of its own, timed alternately."""
