# SPDX-License-Identifier: Apache-2.0
"""Pictures: finding files, decoding them, and converting them to input tensors."""
