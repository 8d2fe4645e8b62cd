# SPDX-License-Identifier: Apache-2.0
"""The plan, its key, its bytes, where all lies in memory; in folders, who makes one."""
