# SPDX-License-Identifier: Apache-2.0
"""Builds kernels, and turns a schedule in a dispatch mode into a plan."""
