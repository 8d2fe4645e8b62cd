# SPDX-License-Identifier: Apache-2.0
"""Checks of nodes and tensors, which raise Unsupported."""
