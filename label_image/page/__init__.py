# SPDX-License-Identifier: Apache-2.0
"""The page of --report: what a run reports, and what is measured and asked for the page alone."""
