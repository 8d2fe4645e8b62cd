# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl generate`: language models as .tflite files; class Generator runs them."""

from tflite_opencl.generate.generator import Generator

__all__ = ["Generator"]
