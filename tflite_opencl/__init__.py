# SPDX-License-Identifier: Apache-2.0
"""The distribution's version, code shared by its commands, and the tflite-opencl command."""

__version__ = "0.1.0"
