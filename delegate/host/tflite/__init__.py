# SPDX-License-Identifier: Apache-2.0
"""TFLite's C structures, memory, kernels and arithmetic rules."""
