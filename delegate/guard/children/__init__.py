# SPDX-License-Identifier: Apache-2.0
"""Child processes, trials in them, their recorded outcomes, and this process's own exit."""
