# SPDX-License-Identifier: Apache-2.0
"""Measured choices: alternatives of nodes, dispatch modes and copy strategies of schedules."""
