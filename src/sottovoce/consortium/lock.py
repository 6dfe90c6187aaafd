"""The lock of a kit: one process runs it, and says which it is."""

import os
from pathlib import Path

from sottovoce.errors import FolderInUse, StoreError

LOCK = ".lock"
"""The file of a kit that the process which runs it holds; it says which process that is."""


class KitLock:
    """The right to run a kit's server or site: one process has it, and those that it starts keep it until they end."""

    def __init__(self, kit: Path) -> None:
        import fcntl  # POSIX: real nodes only

        try:
            self.file = os.open(kit / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise StoreError(
                f"'{kit}' cannot be written to ({error.strerror}); let the user who runs it own the folder: only its "
                "startup and local may be read-only"
            ) from None
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = _number_in(self.file)
            os.close(self.file)
            if holder is not None and not Path(f"/proc/{holder}").exists() and Path("/proc/self").exists():
                raise FolderInUse(
                    f"'{kit}' was run by process {holder}, which is gone, and what it started is ending; try again in "
                    "some seconds"
                ) from None
            named = "another process" if holder is None else f"process {holder}"
            raise FolderInUse(
                f"'{kit}' is run by {named} already; stop that one first, for instance: kill {holder}"
            ) from None
        os.ftruncate(self.file, 0)
        os.pwrite(self.file, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let another process run the kit."""
        os.close(self.file)

    @staticmethod
    def holder(kit: Path) -> int | None:
        """Return the process that runs a kit; None where nobody does."""
        try:
            file = os.open(kit / LOCK, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        import fcntl  # POSIX: real nodes only

        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except OSError:
            return _number_in(file)
        finally:
            os.close(file)


def _number_in(file: int) -> int | None:
    text = os.pread(file, 20, 0).strip()
    return int(text) if text.isdigit() else None
