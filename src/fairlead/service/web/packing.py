"""Pages of two parts that many readers share around a small one of their own, compressed without compressing all again.

A part is a deflate stream that ends with a full flush, so that streams of parts can be joined, and refers to nothing
before itself. Only the checksum of a joined page is computed for each reader.
"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass

_LEVEL = 5
_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # of a gzip file without a name, a time and an operating system


@dataclass(frozen=True, slots=True)
class PagePart:
    plain: bytes
    deflated: bytes

    @property
    def size(self) -> int:
        return len(self.plain) + len(self.deflated)


def pack_part(plain: bytes, *, last: bool = False) -> PagePart:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
    return PagePart(plain, packer.compress(plain) + packer.flush(zlib.Z_FINISH if last else zlib.Z_FULL_FLUSH))


def join_parts(*parts: PagePart) -> bytes:
    """The gzip file of the parts; the last one must have been packed as the last one."""
    checksum, size = 0, 0
    for part in parts:
        checksum, size = zlib.crc32(part.plain, checksum), size + len(part.plain)
    tail = checksum.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little")
    return b"".join((_HEAD, *(part.deflated for part in parts), tail))


def pack(content: bytes) -> bytes:
    return gzip.compress(content, _LEVEL, mtime=0)
