# SPDX-License-Identifier: Apache-2.0
"""The board: its hardware, OpenCL drivers, device profile, and setup advice."""
