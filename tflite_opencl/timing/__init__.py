# SPDX-License-Identifier: Apache-2.0
"""Timing statistics, profiles, traces, and facts about this machine: CPU, memory, energy."""
