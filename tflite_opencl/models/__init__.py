# SPDX-License-Identifier: Apache-2.0
"""Models: the default model, downloads of official ones, extraction of nodes, and construction."""
