# SPDX-License-Identifier: Apache-2.0
"""Recurrent ops: LSTMs and RNNs."""
