# SPDX-License-Identifier: Apache-2.0
"""Convolutions on devices whose lanes are work-items (SIMT)."""
