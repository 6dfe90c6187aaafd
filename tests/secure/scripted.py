"""A generator whose words a test has chosen."""

import numpy as np

from sottovoce.secure.generator import Generator


class Scripted(Generator):
    """Gives `word(level, block, which)` at every node and round; continuations as from any generator."""

    def __init__(self, word):
        self.word = word

    def words(self, nodes, rounds, first, count, level=0):
        blocks = range(first, first + count)
        row = np.array([[self.word(level, block, which) for which in (0, 1)] for block in blocks], dtype=np.uint64)
        return np.repeat(row.reshape(1, count, 2), len(nodes), axis=0)
