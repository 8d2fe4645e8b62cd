# SPDX-License-Identifier: Apache-2.0
"""A conformance suite for any TFLite delegate: tflite-delegate-test."""
