# SPDX-License-Identifier: Apache-2.0
"""Times, profiles, traces, and what is known of this machine."""
