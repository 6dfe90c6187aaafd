"""Format numbers for reading, in one way everywhere."""


def bytes_text(count: float) -> str:
    """A number of bytes for reading.

    Examples
    --------
    >>> bytes_text(15_300_000)
    '15.3 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
