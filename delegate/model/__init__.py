# SPDX-License-Identifier: Apache-2.0
"""Model: runs whole graphs without TFLite, on one device or several."""
