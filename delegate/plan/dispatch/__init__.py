# SPDX-License-Identifier: Apache-2.0
"""Kernels are built, and a program in a dispatch mode becomes a plan."""
