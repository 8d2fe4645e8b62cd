# SPDX-License-Identifier: Apache-2.0
"""Graph rewrite passes, one per module."""
