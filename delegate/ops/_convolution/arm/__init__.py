# SPDX-License-Identifier: Apache-2.0
"""What runs convolutions by Arm's instructions."""
