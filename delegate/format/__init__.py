# SPDX-License-Identifier: Apache-2.0
""".tflite bytes <-> Graph."""
