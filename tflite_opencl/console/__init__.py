# SPDX-License-Identifier: Apache-2.0
"""Console infrastructure: start-up, progress bars, output files, errors, exit codes."""
