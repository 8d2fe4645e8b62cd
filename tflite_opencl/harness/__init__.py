# SPDX-License-Identifier: Apache-2.0
"""Sets up and runs models: input data, jobs, interpreters, and chains of two delegates."""
