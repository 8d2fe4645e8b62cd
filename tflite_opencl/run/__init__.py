# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl run`: any model on files, on the device and beside TFLite's own kernels."""
