"""Private distributed dual averaging: the step sizes, the one iteration, and the lazy running averages."""
