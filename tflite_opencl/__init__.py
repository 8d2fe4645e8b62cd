# SPDX-License-Identifier: Apache-2.0
"""The distribution: its version, what its commands share, and the command tflite-opencl."""

__version__ = "0.1.0"
