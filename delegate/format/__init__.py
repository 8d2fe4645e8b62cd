# SPDX-License-Identifier: Apache-2.0
"""Reading and writing of .tflite files: bytes <-> Graph, metadata, signatures, sparsity."""
