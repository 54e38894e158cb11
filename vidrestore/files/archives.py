"""Check checkpoints of others, as `torch.save` writes them: reading one must take no more memory than its
size.
"""

from __future__ import annotations

import mmap
import zipfile
from pathlib import Path

from vidrestore.files.regular import check_regular

_ASKS_FOR_MEMORY = b"bytearray"  # the only type that torch unpickles with a claimed size and no content


def check_pickled(path: Path) -> None:
    """Raise OSError unless `path` leads to a regular file, ValueError if its content would be larger than the
    file.

    `torch.save` makes archives with uncompressed members. A member that is compressed, or that shares bytes
    with others, may be a thousand times as large; and a pickle may ask for any amount of memory.
    """
    check_regular(path)
    size = path.stat().st_size
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
        if packed := [member.filename for member in members if member.compress_type != zipfile.ZIP_STORED]:
            raise ValueError(f"{len(packed)} of its members are compressed")
        if (unpacked := sum(member.file_size for member in members)) > size:
            raise ValueError(f"its members have {unpacked} bytes, and the file {size}")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(_ASKS_FOR_MEMORY) >= 0:
            raise ValueError("it asks for memory without content for it")
