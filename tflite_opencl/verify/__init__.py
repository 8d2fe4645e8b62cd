# SPDX-License-Identifier: Apache-2.0
"""A delegate's nodes beside the reference kernels: runs, errors, text."""
