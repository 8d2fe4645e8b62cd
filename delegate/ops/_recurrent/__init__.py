# SPDX-License-Identifier: Apache-2.0
"""Ops with steps, each of which reads what the one before gave: LSTMs and RNNs."""
