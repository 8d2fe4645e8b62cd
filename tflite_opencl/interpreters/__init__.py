# SPDX-License-Identifier: Apache-2.0
"""TFLite's interpreters, and what stands in where there are none."""
