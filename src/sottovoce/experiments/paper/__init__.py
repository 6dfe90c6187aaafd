"""The paper's experiments, as it ran them and with honest noise: specifications, runs that are kept, drawings."""
