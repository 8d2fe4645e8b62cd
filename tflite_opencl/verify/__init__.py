# SPDX-License-Identifier: Apache-2.0
"""Compares each of a delegate's nodes with the reference kernels: runs, error maps, text."""
