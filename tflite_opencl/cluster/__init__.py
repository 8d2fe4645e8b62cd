# SPDX-License-Identifier: Apache-2.0
"""Many workers of a Dask cluster."""
