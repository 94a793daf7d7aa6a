"""A disk below SQLite that forgets what was not synced, tears writes, fills up and is slow, all by a seed.

SQLite does its own work on real files in memory (`/dev/shm`). A thin layer between it and them, a VFS, notes every
write, truncation and sync. It can therefore end a process before any single write, and, when the power fails, put the
files back to what was synced plus an arbitrary part of what was not: writes kept, dropped, cut short or garbled.
Whether Fairlead asks for a sync where it needs one is thus observed, not assumed.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECTOR = 512
_OK, _FULL, _IOERR = 0, 13, 10
_DELETE_FAILED, _WRITE_FAILED, _SYNC_FAILED = _IOERR | 10 << 8, _IOERR | 3 << 8, _IOERR | 4 << 8

_Pointer, _Int, _Int64 = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
_Open = ctypes.CFUNCTYPE(_Int, _Pointer, _Pointer, _Pointer, _Int, _Pointer)
_Delete = ctypes.CFUNCTYPE(_Int, _Pointer, ctypes.c_char_p, _Int)
_Close = ctypes.CFUNCTYPE(_Int, _Pointer)
_Write = ctypes.CFUNCTYPE(_Int, _Pointer, _Pointer, _Int, _Int64)
_Truncate = ctypes.CFUNCTYPE(_Int, _Pointer, _Int64)
_Sync = ctypes.CFUNCTYPE(_Int, _Pointer, _Int)


class _Vfs(ctypes.Structure):
    _fields_ = [
        ("version", _Int),
        ("file_size", _Int),
        ("longest_path", _Int),
        ("next", _Pointer),
        ("name", ctypes.c_char_p),
        ("data", _Pointer),
        ("open", _Open),
        ("delete", _Delete),
        *((f"other_{n}", _Pointer) for n in range(13)),
    ]


class _Methods(ctypes.Structure):
    _fields_ = [
        ("version", _Int),
        ("close", _Close),
        ("read", _Pointer),
        ("write", _Write),
        ("truncate", _Truncate),
        ("sync", _Sync),
        *((f"other_{n}", _Pointer) for n in range(13)),
    ]


class _File(ctypes.Structure):
    _fields_ = [("methods", ctypes.POINTER(_Methods))]


@dataclass(slots=True)
class _Stored:
    """A file as it is on the disk: what was synced, and the writes since (offset, bytes), or (size, None) to cut it."""

    synced: bytearray
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.pending:
            _make(self.synced, *change)
        self.pending.clear()


@dataclass(slots=True)
class _Handle:
    stored: _Stored
    life: int  # of the process that opened it


class Disk:
    """All files below `root`. A process is a number, its life; `life` is that of the code that runs now."""

    def __init__(self, root: Path, dice: random.Random) -> None:
        self.root, self.dice = str(root), dice
        self.life = 0
        self.dead: set[int] = set()
        self.writes = 0
        self.syncs = 0
        self.crash_in: int | None = None  # writes until the process that writes next is killed
        self.full = False
        self.sync_fails = False
        self.on_sync: Callable[[], None] = lambda: None
        self.killed: Callable[[int], None] = lambda life: None
        self._stored: dict[str, _Stored] = {}
        self._handles: dict[int, _Handle] = {}
        self._connections: list[tuple[int, sqlite3.Connection]] = []

    def connected(self, connection: sqlite3.Connection) -> None:
        self._connections.append((self.life, connection))

    def close(self, life: int) -> None:
        """What the operating system does when a process ends: it closes the files, and gives back their locks."""
        before, self.life = self.life, life
        for owner, connection in self._connections:
            if owner == life:
                connection.close()
        self._connections = [pair for pair in self._connections if pair[0] != life]
        self.life = before

    def close_all(self) -> None:
        for life in {life for life, _ in self._connections}:
            self.close(life)

    def kill(self, life: int) -> None:
        """From now on nothing that this process does reaches the disk."""
        if life not in self.dead:
            self.dead.add(life)
            self.killed(life)

    def lose_power(self) -> None:
        """Put the files back to what the disk holds. All processes are dead and have closed their files."""
        for path, stored in self._stored.items():
            for change in stored.pending:
                self._keep_some(stored.synced, *change)
            stored.pending.clear()
            if Path(path).exists():
                Path(path).write_bytes(stored.synced)
            Path(f"{path}-shm").unlink(missing_ok=True)

    @property
    def unsynced(self) -> int:
        return sum(len(stored.pending) for stored in self._stored.values())

    def _keep_some(self, image: bytearray, offset: int, data: bytes | None) -> None:
        fate = self.dice.random()
        if fate < 0.4 or data is None:
            _make(image, offset, data)
        elif fate < 0.6:
            _make(image, offset, data[: self.dice.randrange(len(data) // SECTOR + 1) * SECTOR])
        elif fate < 0.75:
            _make(image, offset, self.dice.randbytes(len(data)))

    # ---- what SQLite calls ----------------------------------------------------------------------------------------

    def opened(self, path: str, address: int) -> None:
        stored = self._stored.get(path)
        if stored is None:
            stored = self._stored[path] = _Stored(bytearray(Path(path).read_bytes()))
        self._handles[address] = _Handle(stored, self.life)

    def closed(self, address: int) -> None:
        self._handles.pop(address, None)

    def deleted(self, path: str) -> int:
        if self.life in self.dead:
            return _DELETE_FAILED
        self._stored.pop(path, None)
        return _OK

    def may_write(self, address: int) -> int:
        handle = self._handles[address]
        if handle.life in self.dead:
            return _WRITE_FAILED
        self.writes += 1
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                self.crash_in = None
                self.kill(handle.life)
                return _WRITE_FAILED
        return _FULL if self.full else _OK

    def wrote(self, address: int, offset: int, data: bytes | None) -> None:
        self._handles[address].stored.pending.append((offset, data))

    def may_sync(self, address: int) -> int:
        handle = self._handles[address]
        if handle.life in self.dead:
            return _SYNC_FAILED
        self.on_sync()
        if self.sync_fails:
            return _SYNC_FAILED
        self.syncs += 1
        handle.stored.sync()
        return _OK


def _make(image: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del image[offset:]
        return
    if len(image) < offset:
        image.extend(bytes(offset - len(image)))
    image[offset : offset + len(data)] = data


class _Layer:
    """The VFS of the process, once. `disk` is the one that watches at the moment."""

    def __init__(self) -> None:
        self.disk: Disk | None = None
        self._library = ctypes.CDLL(_sqlite3.__file__)  # finds SQLite's functions whether it is linked in or not
        self._library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        self._below = self._library.sqlite3_vfs_find(None)
        self._methods: dict[int, tuple[_Methods, _Methods]] = {}  # by address: those below, and ours
        self._below_of: dict[int, _Methods] = {}  # by file
        self._shim = _Vfs()
        ctypes.memmove(ctypes.byref(self._shim), self._below, ctypes.sizeof(_Vfs))
        self._shim.name = b"fairlead-simulated"
        self._shim.open, self._shim.delete = _Open(self._open), _Delete(self._delete)
        self._calls: dict[str, Any] = {
            "close": _Close(self._close),
            "write": _Write(self._write),
            "truncate": _Truncate(self._truncate),
            "sync": _Sync(self._sync),
        }

    def begin(self, disk: Disk) -> None:
        self.disk = disk
        self._library.sqlite3_vfs_register(ctypes.byref(self._shim), 1)

    def end(self) -> None:
        self.disk = None
        self._library.sqlite3_vfs_register(self._below, 1)

    def _open(self, vfs: int, name: int | None, file: int, flags: int, out: int | None) -> int:
        code: int = self._below.contents.open(vfs, name, file, flags, out)
        path = "" if name is None else ctypes.string_at(name).decode()
        if code == _OK and self.disk is not None and path.startswith(self.disk.root):
            opened = _File.from_address(file)
            below = ctypes.addressof(opened.methods.contents)
            if below not in self._methods:
                theirs, ours = opened.methods.contents, _Methods()
                ctypes.memmove(ctypes.byref(ours), below, ctypes.sizeof(_Methods))
                for call, function in self._calls.items():
                    setattr(ours, call, function)
                self._methods[below] = (theirs, ours)
            self._below_of[file], ours = self._methods[below]
            opened.methods = ctypes.pointer(ours)
            self.disk.opened(path, file)
        return code

    def _delete(self, vfs: int, name: bytes, sync: int) -> int:
        if self.disk is not None and name.decode().startswith(self.disk.root):
            code = self.disk.deleted(name.decode())
            if code != _OK:
                return code
        done: int = self._below.contents.delete(vfs, name, sync)
        return done

    def _close(self, file: int) -> int:
        if self.disk is not None:
            self.disk.closed(file)
        code: int = self._below_of.pop(file).close(file)
        return code

    def _write(self, file: int, data: int, size: int, offset: int) -> int:
        assert self.disk is not None
        code = self.disk.may_write(file)
        if code == _OK:
            code = self._below_of[file].write(file, data, size, offset)
            self.disk.wrote(file, offset, ctypes.string_at(data, size))
        return code

    def _truncate(self, file: int, size: int) -> int:
        assert self.disk is not None
        code = self.disk.may_write(file)
        if code == _OK:
            code = self._below_of[file].truncate(file, size)
            self.disk.wrote(file, size, None)
        return code

    def _sync(self, file: int, flags: int) -> int:
        assert self.disk is not None
        return self.disk.may_sync(file)


_LAYERS: list[_Layer] = []  # at most one: SQLite keeps its address


@contextmanager
def watched(disk: Disk) -> Iterator[Disk]:
    """Until the end, SQLite's files below the disk's root are on this disk, whoever opens them in this process."""
    if not _LAYERS:
        _LAYERS.append(_Layer())
    with connections_noted(disk):
        _LAYERS[0].begin(disk)
        try:
            yield disk
        finally:
            _LAYERS[0].end()


@contextmanager
def connections_noted(disk: Disk) -> Iterator[None]:
    """Until the end, the disk knows which life opened which connection, so that `close` can close them."""
    connect = sqlite3.connect

    def connect_here(*arguments: Any, **more: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **more)
        disk.connected(connection)
        return connection

    sqlite3.connect = connect_here  # type: ignore[assignment]
    try:
        yield
    finally:
        sqlite3.connect = connect
