# SPDX-License-Identifier: Apache-2.0
"""Output decoders, one module per model family: outputs -> classes, boxes, keypoints, a mask."""
