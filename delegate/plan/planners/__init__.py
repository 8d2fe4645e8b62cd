# SPDX-License-Identifier: Apache-2.0
"""Plans from the cache, a child process, a file, or made here."""
