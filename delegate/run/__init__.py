# SPDX-License-Identifier: Apache-2.0
"""Plan -> device: opens it, loads programs and constants, executes."""
