# SPDX-License-Identifier: Apache-2.0
"""Live input: a video, camera or stream through a run's paths, frame by frame."""
