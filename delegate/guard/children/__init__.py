# SPDX-License-Identifier: Apache-2.0
"""What may end a process: child processes, trials and how they ended, this process."""
