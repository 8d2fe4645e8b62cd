# SPDX-License-Identifier: Apache-2.0
"""Pictures: which are meant, and from their files to the values that an input takes."""
