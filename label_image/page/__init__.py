# SPDX-License-Identifier: Apache-2.0
"""The HTML page of --report: the run's results, and measurements made for the page alone."""
