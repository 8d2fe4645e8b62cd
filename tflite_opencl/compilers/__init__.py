# SPDX-License-Identifier: Apache-2.0
"""What drivers' compilers make of a model's kernels: builds, statistics, tables, paper figures."""
