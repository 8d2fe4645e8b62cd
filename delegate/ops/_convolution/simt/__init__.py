# SPDX-License-Identifier: Apache-2.0
"""What runs convolutions on devices that run work-items side by side."""
