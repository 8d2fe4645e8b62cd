# SPDX-License-Identifier: Apache-2.0
"""TFLite's own structures, memory and kernels, as a delegate meets them."""
