# SPDX-License-Identifier: Apache-2.0
"""What the commands share: the installed TFLite runtime, times, downloads, what they print to."""
