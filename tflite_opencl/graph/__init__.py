# SPDX-License-Identifier: Apache-2.0
"""The nodes of a model as a table and as a page."""
