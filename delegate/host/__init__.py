# SPDX-License-Identifier: Apache-2.0
"""The delegate inside TFLite: which nodes it claims, and the kernels of its partitions."""
