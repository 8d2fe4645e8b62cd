# SPDX-License-Identifier: Apache-2.0
"""The label_image command: a picture, a .tflite model, the CPU or OpenCL, and the best classes."""
