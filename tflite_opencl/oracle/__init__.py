# SPDX-License-Identifier: Apache-2.0
"""Which outputs are right, and how far floats may lie from them."""
