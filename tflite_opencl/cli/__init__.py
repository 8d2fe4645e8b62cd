# SPDX-License-Identifier: Apache-2.0
"""Command-line infrastructure: parsers, the flag table, value conversion, shared messages."""
