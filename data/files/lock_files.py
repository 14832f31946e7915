"""The file that says who writes to a place: what stands in it, and how it comes into being.

See `locks`, which it is for.
"""

import contextlib
import datetime
import functools
import hashlib
import json
import os
import re
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from data.files import atomic

READ_ERRORS = (OSError, tf.errors.OpError)
NAME = ".lock"
_PAUSE_SECONDS = 1.0  # between writing and reading back, where nothing is exclusive


def is_lock(name: str) -> bool:
    """Whether a file of this name is a lock, or one in the making."""
    return name.startswith(".") and (name.endswith(NAME) or f"{NAME}." in name)


# ---- What stands in it ----


def own_lock(token: str, team: str, beats: int = 0) -> bytes:
    """What says that this process is the owner.

    Always as long, so that a sign of life is a change in place, for which a full disk has room.

    Args:
        token: 16 hexadecimal digits, of this owner alone.
        team: See `locks.one_writer`.
        beats: Signs of life so far.
    """
    owner = {
        "host": socket.gethostname(),
        "process": os.getpid(),
        "since": _process_since(),
        "command": " ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]])[:200],
        "machine": _machine(),
        "started": _start_of(os.getpid()),
        "team": team,
        "token": token,
        "beats": f"{beats:012d}",
    }
    return json.dumps(owner).encode() + b"\n"


@functools.cache
def _process_since() -> str:
    now = datetime.datetime.now(datetime.timezone.utc)
    return now.strftime("%Y-%m-%d %H:%M:%S UTC")


def lock_owner(content: bytes) -> dict[str, Any]:
    """What a lock file says; of a damaged one only a token, which stands for its content."""
    with contextlib.suppress(ValueError, RecursionError):
        owner = json.loads(content)
        if isinstance(owner, dict) and re.fullmatch("[0-9a-f]{16}", str(owner.get("token"))):
            return owner
    return {"token": hashlib.blake2b(content, digest_size=8).hexdigest()}


def owner_in_words(owner: Mapping[str, Any]) -> str:
    """For messages."""
    if "process" not in owner:
        return "a process that its lock file doesn't tell"
    return (
        f"process {owner['process']} on {owner.get('host')}, since {owner.get('since')} "
        f"({owner.get('command')})"
    )


def is_owner_alive(owner: Mapping[str, Any]) -> bool | None:
    """Whether its process runs; None on another machine, where that can't be known."""
    if owner.get("machine") != _machine():
        return None
    try:
        return _start_of(int(owner["process"])) == owner["started"]
    except (KeyError, TypeError, ValueError):
        return False


@functools.cache
def _machine() -> str:
    """Tells where process numbers mean the same: this boot of this host, in this container."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        parts += [file.read().strip(), os.readlink("/proc/self/ns/pid")]
    return " ".join(parts)


def _start_of(process: int) -> str:
    """When a process of this machine began, in a unit of its own; "" if it has ended.

    "?" where the system doesn't tell: a number that another process has now counts as alive.
    """
    if not os.path.exists("/proc/self/stat"):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return ""
        except PermissionError:
            pass
        return "?"
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            # The name before it may hold anything.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


# ---- The file ----


def _is_remote(path: str) -> bool:
    return "://" in path


def read_lock(path: str) -> bytes | None:
    """What a lock file holds; None if it isn't there."""
    try:
        with tf.io.gfile.GFile(path, "rb") if _is_remote(path) else open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, tf.errors.NotFoundError):
        return None


def create_lock(path: str, content: bytes) -> bool:
    """Writes a lock that isn't there; False if there is one."""
    if _is_remote(path):
        return not tf.io.gfile.exists(path) and replace_lock(path, content)
    temporary = atomic.temporary_name(path)
    try:
        with open(temporary, "xb") as file:
            file.write(content)
        try:
            os.link(temporary, path)
        except FileExistsError:
            # NFS says that too where its answer to a first try was lost.
            with contextlib.suppress(FileNotFoundError):
                return os.stat(temporary).st_nlink > 1
            return False
        except FileNotFoundError:  # the owner has just cleaned up
            return False
        except OSError:  # a file system without links
            with contextlib.suppress(FileExistsError), open(path, "xb") as file:
                file.write(content)
                return True
            return False
        return True
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(temporary)


def replace_lock(path: str, content: bytes) -> bool:
    """Puts a lock over another; whether it stays."""
    if _is_remote(path):
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(content)
        time.sleep(_PAUSE_SECONDS)
        return read_lock(path) == content
    temporary = atomic.temporary_name(path)
    with open(temporary, "xb") as file:
        file.write(content)
    try:
        os.rename(temporary, path)
    except FileNotFoundError:  # as above
        return False
    return True


def rewrite_lock(path: str, content: bytes) -> None:
    """Gives a sign of life in one's own lock."""
    if _is_remote(path):
        with tf.io.gfile.GFile(path, "wb") as file:
            file.write(content)
        return
    # Not by renaming: should the lock become another's just now, that one's file stays as it is.
    with open(path, "r+b") as file:
        if lock_owner(file.read())["token"] == lock_owner(content)["token"]:
            file.seek(0)
            file.write(content)
