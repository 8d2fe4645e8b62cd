# SPDX-License-Identifier: Apache-2.0
"""How a command begins, waits, writes, fails and ends."""
