# SPDX-License-Identifier: Apache-2.0
"""Plans executed in a child process of their own, so that a driver ends that one at most."""
