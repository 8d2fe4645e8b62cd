# SPDX-License-Identifier: Apache-2.0
"""In TFLite's hands: what of a graph is claimed, and the kernels of its partitions."""
