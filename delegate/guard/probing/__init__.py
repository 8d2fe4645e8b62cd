# SPDX-License-Identifier: Apache-2.0
"""A device is tried in a child process, and opened."""
