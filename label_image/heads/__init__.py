# SPDX-License-Identifier: Apache-2.0
"""What a model's last layers mean, one file a head: outputs -> classes, boxes, points, a mask."""
