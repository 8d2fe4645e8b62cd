# SPDX-License-Identifier: Apache-2.0
"""What shells and man know of the commands, made of the parsers that the commands use."""
