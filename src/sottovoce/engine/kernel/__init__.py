"""The compiled rounds, in Numba: flat arrays in, nothing but numbers inside."""
