# SPDX-License-Identifier: Apache-2.0
"""Lowering of convolutions to Arm's instructions."""
