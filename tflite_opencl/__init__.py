# SPDX-License-Identifier: Apache-2.0
"""tflite-opencl: commands about the machine this runs on; `info` is the first."""
