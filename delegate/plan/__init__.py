# SPDX-License-Identifier: Apache-2.0
"""The Plan: record, cache key, encoding and memory layout; subpackages produce it."""
