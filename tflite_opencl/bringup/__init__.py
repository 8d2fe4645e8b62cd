# SPDX-License-Identifier: Apache-2.0
"""First-time bring-up of a driver: a ladder of steps, each a few lines of OpenCL C."""
