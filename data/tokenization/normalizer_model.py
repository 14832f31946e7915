"""Own character mappings in the model format of TF Text's `FastBertNormalize` op.

The op maps text code point by code point through a double-array trie (the "Darts-clone" layout)
that it takes as a byte tensor. TF Text only builds its own two mappings; this file builds the
same kind of model from any mapping, so that our normalisation runs at that op's speed, keeps its
offsets, and needs no op that TF Serving lacks.
"""

import struct
from collections.abc import Mapping

import numpy as np

_BLOCK = 256
# How many of the newest blocks are searched for room; older ones are nearly full.
_OPEN_BLOCKS = 8
_MAX_REPLACEMENT_BYTES = 63
_DIFFERENT = 0x40000000
_HAS_VALUE = 0x100
_VALUE = 0x80000000


def build_normalizer_model(mapping: Mapping[bytes, bytes]) -> bytes:
    """Serialises a mapping of characters for `fast_bert_normalize`.

    Args:
        mapping: UTF-8 bytes of one code point to the bytes that replace it (at most 63, possibly
            none). Code points without an entry stay as they are. The key may also be a piece of
            broken UTF-8 of one to three bytes.

    Returns:
        The op's `fast_bert_normalizer_model`, a FlatBuffer.
    """
    pool = bytearray()
    places: dict[bytes, int] = {}
    values: dict[bytes, int] = {}
    for key, replacement in mapping.items():
        if len(replacement) > _MAX_REPLACEMENT_BYTES:
            raise ValueError(f"The replacement of {key!r} is longer than 63 bytes.")
        if replacement not in places:
            places[replacement] = len(pool)
            pool += replacement
        values[key] = _DIFFERENT | places[replacement] << 6 | len(replacement)
    # A trie walk can't take the step zero, so the format keeps NUL apart.
    value_of_nul = values.pop(b"\0", 0)
    trie = _build_double_array(values)
    header = struct.pack(
        "<IHHHHHHiIII",
        16,  # the table's place
        12, 16, 0, 4, 8, 12,  # vtable: its size, the table's size, field offsets
        12,  # table: back to the vtable
        12,  # to the trie, at 32
        value_of_nul,
        8 + 4 * len(trie),  # to the pool, behind the trie
    )  # fmt: skip
    return b"".join(
        [
            header,
            struct.pack("<I", len(trie)),
            trie.astype("<u4").tobytes(),
            struct.pack("<I", len(pool)),
            bytes(pool),
            bytes(-len(pool) % 4),
        ]
    )


def _build_double_array(values: Mapping[bytes, int]) -> np.ndarray:
    """A Darts-clone double array: uint32 units, `values` being nonnegative 31-bit numbers.

    A node at place p with base b has its child for byte c at b ^ c, and its own value, if it has
    one, at b (that is, at the child for byte 0). No key may contain a zero byte.
    """
    root: dict[int, dict] = {}
    for key, value in values.items():
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
        node[0] = value

    units: list[int] = [0] * _BLOCK
    free = [set(range(1, _BLOCK))]
    used_bases: set[int] = set()

    def find_base(labels: list[int]) -> int:
        first = labels[0]
        for number in range(max(0, len(free) - _OPEN_BLOCKS), len(free)):
            for place in free[number]:
                base = place ^ first
                if base not in used_bases and all(base ^ label in free[number] for label in labels):
                    return base
        start = len(units)
        units.extend([0] * _BLOCK)
        free.append(set(range(start, start + _BLOCK)))
        return start ^ first

    stack = [(root, 0)]
    while stack:
        node, place = stack.pop()
        labels = sorted(node)
        base = find_base(labels)
        used_bases.add(base)
        offset = base ^ place
        if offset >= 1 << 21:
            raise ValueError("The mapping has too many entries for one trie.")
        units[place] |= offset << 10 | (_HAS_VALUE if labels[0] == 0 else 0)
        free_of_block = free[base // _BLOCK]
        for label in labels:
            free_of_block.remove(base ^ label)
        for label in labels:
            if label == 0:
                units[base] = _VALUE | node[0]
            else:
                units[base ^ label] = label
                stack.append((node[label], base ^ label))
    return np.array(units, np.uint32)
