# SPDX-License-Identifier: Apache-2.0
"""A start: a device is examined, opened, and does only what a child process did before."""
