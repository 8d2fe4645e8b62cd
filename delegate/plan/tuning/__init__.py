# SPDX-License-Identifier: Apache-2.0
"""What is fastest on this device: alternatives of nodes, and forms of programs."""
