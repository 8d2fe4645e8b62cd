# SPDX-License-Identifier: Apache-2.0
"""Turns a wrong node into a C program: trials, reduction, a preprocessor, the files."""
