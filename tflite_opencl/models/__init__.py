# SPDX-License-Identifier: Apache-2.0
"""Models: the default one, official ones, parts, and new ones."""
