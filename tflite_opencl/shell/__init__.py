# SPDX-License-Identifier: Apache-2.0
"""Shell completion and manual pages, generated from the commands' own parsers."""
