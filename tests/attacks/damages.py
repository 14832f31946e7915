"""What can be done to a file: each takes its path; what it is called goes into the case's name."""

import gzip
import json
import os
import pathlib
import shutil
import struct
from collections.abc import Callable

Damage = Callable[[pathlib.Path], None]
NOISE = bytes(range(256)) * 8


def _clear(path: pathlib.Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def missing(path: pathlib.Path) -> None:
    _clear(path)


def empty(path: pathlib.Path) -> None:
    write(path, b"")


def folder(path: pathlib.Path) -> None:
    _clear(path)
    path.mkdir()


def binary(path: pathlib.Path) -> None:
    write(path, NOISE)


def dangling_link(path: pathlib.Path) -> None:
    _clear(path)
    path.symlink_to("nowhere")


def circular_link(path: pathlib.Path) -> None:
    _clear(path)
    path.symlink_to(path.name)


def cut(path: pathlib.Path) -> None:
    """In the middle."""
    content = path.read_bytes()
    write(path, content[: len(content) // 2])


def utf16(path: pathlib.Path) -> None:
    write(path, path.read_text().encode("utf-16"))


def latin1(path: pathlib.Path) -> None:
    """The last line has a letter that isn't UTF-8."""
    content = path.read_bytes().rstrip(b"\n")
    write(path, content[:-1] + b"\xe9\n")


def half_gzip(path: pathlib.Path) -> None:
    """NAME.gz beside it, cut."""
    packed = gzip.compress(path.read_bytes())
    path.with_name(path.name + ".gz").write_bytes(packed[: len(packed) // 2])


def flipped(path: pathlib.Path) -> None:
    """One byte in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    write(path, bytes(content))


def longer(path: pathlib.Path) -> None:
    write(path, path.read_bytes() + b"\0" * 7)


def write(path: pathlib.Path, content: bytes) -> None:
    _clear(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def holding(content: str | bytes) -> Damage:
    """The file holds this instead."""
    data = content if isinstance(content, bytes) else content.encode()
    return _named(lambda path: write(path, data), f"holding {_short(data)}")


def with_more(content: str | bytes) -> Damage:
    """This stands at its end."""
    data = content if isinstance(content, bytes) else content.encode()
    return _named(lambda path: write(path, path.read_bytes() + data), f"with more {_short(data)}")


def replaced(old: str, new: str, count: int = 1) -> Damage:
    def damage(path):
        text = path.read_text()
        assert old in text, f"{path} has no {old!r}"
        write(path, text.replace(old, new, count).encode())

    return _named(damage, f"{old!r} → {_short(new.encode())}")


def fields(**values) -> Damage:
    """A JSON object with other fields; ... removes one."""

    def damage(path):
        content = json.loads(path.read_text()) | values
        content = {name: value for name, value in content.items() if value is not ...}
        write(path, json.dumps(content).encode())

    said = ", ".join(f"{name}={_short(str(value).encode())}" for name, value in values.items())
    return _named(damage, f"with {said}")


def json_changed(name: str, change: Callable) -> Damage:
    """`change` alters or replaces what JSON holds."""

    def damage(path):
        content = json.loads(path.read_text())
        changed = change(content)
        write(path, json.dumps(content if changed is None else changed).encode())

    return _named(damage, name)


def header(name: str, change: Callable[[dict], None]) -> Damage:
    """Safetensors whose header is changed; offsets count from its end, so the data stay theirs."""

    def damage(path):
        content = path.read_bytes()
        (size,) = struct.unpack("<Q", content[:8])
        value = json.loads(content[8 : 8 + size])
        change(value)
        text = json.dumps(value).encode()
        text += b" " * (-len(text) % 8)
        write(path, struct.pack("<Q", len(text)) + text + content[8 + size :])

    return _named(damage, name)


def tensor_data(name: str, value: bytes, only: str = "") -> Damage:
    """Safetensors of whose tensors `only` (default: all) holds nothing but this value."""

    def damage(path):
        content = bytearray(path.read_bytes())
        (size,) = struct.unpack("<Q", content[:8])
        for tensor, about in json.loads(content[8 : 8 + size]).items():
            if tensor != "__metadata__" and only in tensor:
                begin, end = (8 + size + place for place in about["data_offsets"])
                content[begin:end] = value * ((end - begin) // len(value))
        write(path, bytes(content))

    return _named(damage, name)


def link_to(target: str) -> Damage:
    """A symbolic link, relative to its folder."""

    def damage(path):
        _clear(path)
        path.symlink_to(target)

    return _named(damage, f"link to {target}")


def hard_link_to(target: str) -> Damage:
    def damage(path):
        _clear(path)
        os.link(path.parent / target, path)

    return _named(damage, f"hard link to {target}")


def renamed(name: str) -> Damage:
    return _named(lambda path: path.rename(path.parent / name), f"renamed {name}")


def copied_to(name: str) -> Damage:
    return _named(lambda path: shutil.copy(path, path.parent / name), f"copied to {name}")


def _named(damage: Damage, name: str) -> Damage:
    damage.__name__ = name
    return damage


def _short(data: bytes) -> str:
    text = repr(data[:10_000].decode(errors="replace"))
    return text if len(text) < 60 else f"{text[:20]}…{text[-30:]} ({len(data)} bytes)"
