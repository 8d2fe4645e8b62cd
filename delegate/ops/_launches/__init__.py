# SPDX-License-Identifier: Apache-2.0
"""Launches that are common to several ops."""
