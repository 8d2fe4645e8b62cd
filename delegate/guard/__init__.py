# SPDX-License-Identifier: Apache-2.0
"""What keeps a driver from ending this process: children, trials, bans, the cache."""
