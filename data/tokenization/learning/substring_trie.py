"""Choosing word pieces by how often they occur.

The algorithm is the one that TF Text documents for its own vocabulary learner: count every
substring that starts where a piece may start, keep those counted at least T times, longest first
and each taking its occurrences away from its prefixes; cut the words greedily with what was kept
and count again, a few rounds; choose T to meet the wanted size. Here the substrings are the nodes
of one trie, so that a round is a handful of array operations, and the size is met exactly.
"""

import itertools
from collections.abc import Mapping

import numpy as np
from absl import logging

from data.tokenization import vocabulary

_MAX_PIECE_CHARS = 50
_ROUNDS = 4
# Of all words together; a character takes some 140 bytes.
_MAX_CHARACTERS = 40_000_000


class SubstringTrie:
    """All frequent substrings of the words, apart by whether they start the word.

    A node is a substring. Position p is a character of some word; `deepest[p]` is the node of the
    longest frequent substring that starts there.
    """

    def __init__(self, words: Mapping[str, int], min_frequency: int, taken: set[str]):
        ordered = sorted(_most_frequent(words).items())
        self._text = "".join(word for word, _ in ordered)
        lengths = np.array([len(word) for word, _ in ordered], np.int64)
        counts = np.array([count for _, count in ordered], np.int64)
        codes = np.frombuffer(self._text.encode("utf-32-le"), np.uint32)
        symbols, chars = np.unique(codes, return_inverse=True)
        end = np.cumsum(lengths)
        self._starts = end - lengths
        self._end = np.repeat(end, lengths)
        self._count = np.repeat(counts, lengths)
        self._min_frequency = min_frequency
        positions = np.arange(len(codes))
        inner = np.ones(len(codes), np.int64)
        inner[self._starts] = 0

        width = len(symbols)
        self._parents: list[np.ndarray] = []  # per level, node numbers of the level above
        self._first: list[np.ndarray] = []  # per level, node number where the level begins
        self.deepest = np.zeros(len(codes), np.int64)
        examples: list[np.ndarray] = []
        nodes = 0
        alive, keys = positions, inner * width + chars
        for depth in range(1, _MAX_PIECE_CHARS + 1):
            unique, example, inverse = np.unique(keys, return_index=True, return_inverse=True)
            total = np.bincount(inverse, weights=self._count[alive], minlength=len(unique))
            # Single characters are always pieces.
            keep = (total >= min_frequency) | (depth == 1)
            if not keep.any():
                break
            number = np.where(keep, nodes + np.cumsum(keep) - 1, -1)
            self._parents.append(unique[keep] // width)
            self._first.append(nodes)
            examples.append(alive[example[keep]])
            nodes += int(keep.sum())
            node = number[inverse]
            alive, node = alive[node >= 0], node[node >= 0]
            self.deepest[alive] = node
            longer = self._end[alive] - alive > depth
            alive, node = alive[longer], node[longer]
            if not len(alive):
                break
            keys = node * width + chars[alive + depth]
        self._first.append(nodes)
        self._nodes = nodes
        self._example = np.concatenate(examples) if examples else np.zeros(0, np.int64)
        self._inner = inner
        self._depth = np.repeat(np.arange(1, len(examples) + 1), [len(e) for e in examples])
        self._candidate = self._depth > 1
        if taken:
            by_length = {len(token.removeprefix(vocabulary.CONTINUATION)) for token in taken}
            for node in np.flatnonzero(self._candidate & np.isin(self._depth, list(by_length))):
                if self._token(node) in taken:
                    self._candidate[node] = False

    def learn(self, size: int) -> list[str]:
        """The `size` best pieces of two characters or more (fewer if there are too few)."""
        if size <= 0 or not self._nodes:
            return []
        kept, weight = self._rounds(self._min_frequency)
        if kept.sum() > size:
            everywhere = self._totals(np.arange(len(self.deepest)))[self._candidate]
            # No more substrings are kept at T than occur T times.
            low = self._min_frequency
            high = int(np.partition(everywhere, -size)[-size]) + 1
            while high - low > 1:
                middle = (low + high) // 2
                tried, weights = self._rounds(middle)
                if tried.sum() >= size:
                    low, kept, weight = middle, tried, weights
                else:
                    high = middle
            logging.info("Pieces that occur %d times: %d; %d wanted", low, kept.sum(), size)
        pieces = np.flatnonzero(kept)
        # Of equally frequent pieces the longer one saves more.
        ranked = sorted(
            (-int(weight[node]), -int(self._depth[node]), self._token(node)) for node in pieces
        )
        return [token for _, _, token in ranked[:size]]

    def _rounds(self, threshold: int) -> tuple[np.ndarray, np.ndarray]:
        """Which nodes are kept as pieces of two characters or more, and every node's count."""
        active = np.arange(len(self.deepest))
        for _ in range(_ROUNDS):
            total = self._totals(active)
            kept = self._depth == 1
            taken = np.zeros(self._nodes + 1)
            for level in reversed(range(len(self._parents))):
                here = slice(self._first[level], self._first[level + 1])
                own = total[here] - taken[here]
                total[here] = own
                kept[here] |= own >= threshold
                if level:
                    above = taken[here] + own * kept[here]
                    taken += np.bincount(
                        self._parents[level], weights=above, minlength=self._nodes + 1
                    )
            active = self._piece_starts(kept)
        return kept & self._candidate, total

    def _totals(self, positions: np.ndarray) -> np.ndarray:
        """How often each node's substring occurs at the given positions: float64 [nodes]."""
        total = np.bincount(
            self.deepest[positions], weights=self._count[positions], minlength=self._nodes
        )
        for level in reversed(range(1, len(self._parents))):
            here = slice(self._first[level], self._first[level + 1])
            total += np.bincount(self._parents[level], weights=total[here], minlength=self._nodes)
        return total

    def _piece_starts(self, kept: np.ndarray) -> np.ndarray:
        """Positions where pieces start when each word is cut by longest match first."""
        longest = np.where(kept, self._depth, 0)
        for level in range(1, len(self._parents)):
            here = slice(self._first[level], self._first[level + 1])
            longest[here] = np.where(kept[here], longest[here], longest[self._parents[level]])
        starts = []
        current = self._starts
        while len(current):
            starts.append(current)
            after = current + longest[self.deepest[current]]
            current = after[after < self._end[current]]
        return np.concatenate(starts)

    def _token(self, node: int) -> str:
        begin = self._example[node]
        piece = self._text[begin : begin + self._depth[node]]
        return vocabulary.CONTINUATION + piece if self._inner[begin] else piece


def _most_frequent(words: Mapping[str, int]) -> Mapping[str, int]:
    """The words, or the most frequent where they are too long together: languages without spaces.

    Thai's or Lao's "words" are phrases, most of them of one occurrence.
    """
    if sum(map(len, words)) <= _MAX_CHARACTERS:
        return words
    ranked = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    ends = itertools.accumulate(len(word) for word, _ in ranked)
    kept = sum(1 for _ in itertools.takewhile(lambda end: end <= _MAX_CHARACTERS, ends))
    logging.warning(
        "The %d distinct words have more than %d million characters: pieces are chosen from the %d"
        " most frequent of them",
        len(words),
        _MAX_CHARACTERS // 10**6,
        kept,
    )
    return dict(ranked[:kept])
