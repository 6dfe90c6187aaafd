"""A consortium of real owners on NVIDIA FLARE: schema, provisioning, the nodes' executor, private evaluation."""
