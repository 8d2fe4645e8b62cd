# SPDX-License-Identifier: Apache-2.0
"""Protection from drivers that crash or hang: children, trials, bans, isolation, the cache."""
