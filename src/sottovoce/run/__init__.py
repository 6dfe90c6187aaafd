"""A run written down, built, run and kept: `Spec` in, `Result` out."""
