"""What makes a file that was put in its place stay there.

Knows no file formats. Always: a folder whose sync returned has the names that it had before, even if the power fails.
"""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
