# SPDX-License-Identifier: Apache-2.0
"""`tflite-opencl run`: runs any model on files, on the device and on TFLite's own kernels."""
