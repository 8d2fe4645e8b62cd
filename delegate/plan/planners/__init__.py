# SPDX-License-Identifier: Apache-2.0
"""Sources of plans: the cache, a child process, a file, or this process."""
