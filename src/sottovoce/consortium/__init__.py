"""A consortium of real owners on NVIDIA FLARE: their agreement, kits, nodes in a job, private evaluation."""
