# SPDX-License-Identifier: Apache-2.0
"""A board: what is there, which driver, what to do, its profile."""
