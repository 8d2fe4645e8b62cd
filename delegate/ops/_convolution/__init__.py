# SPDX-License-Identifier: Apache-2.0
"""Convolutions: records, packing of constants, and launches for each kind of device."""
