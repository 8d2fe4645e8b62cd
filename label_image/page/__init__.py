# SPDX-License-Identifier: Apache-2.0
"""The page of --report: what a run told, and what is measured and asked for the page alone."""
