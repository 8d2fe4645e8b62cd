# SPDX-License-Identifier: Apache-2.0
"""Convolutions: records, channel constants, and the kernels for each kind of device."""
