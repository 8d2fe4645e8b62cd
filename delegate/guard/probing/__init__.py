# SPDX-License-Identifier: Apache-2.0
"""Tests a device in a child process, and opens it."""
