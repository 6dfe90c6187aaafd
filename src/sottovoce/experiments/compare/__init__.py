"""Algorithms side by side: the same data, budget, adjacency and passes, one table, one ranking for each adversary."""
