# SPDX-License-Identifier: Apache-2.0
"""Analyses a driver's compiler on a model's kernels: builds, statistics, tables, estimates."""
