# SPDX-License-Identifier: Apache-2.0
"""Distributes work over the workers of a Dask cluster."""
