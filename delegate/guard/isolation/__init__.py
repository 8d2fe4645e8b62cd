# SPDX-License-Identifier: Apache-2.0
"""Execution of plans in a separate child process, so that a driver crash kills only that."""
