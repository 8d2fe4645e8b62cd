# SPDX-License-Identifier: Apache-2.0
"""The command line: flags, their values, and the words that commands share."""
