# SPDX-License-Identifier: Apache-2.0
"""Execution of a Plan: devices, programs, constants, memory and launches."""
