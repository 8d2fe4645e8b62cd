# SPDX-License-Identifier: Apache-2.0
"""Live pictures: a video, a camera or a stream through a run's paths, frame by frame."""
