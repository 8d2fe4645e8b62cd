# SPDX-License-Identifier: Apache-2.0
"""Model: a whole graph without TFLite, on one device or several."""
