"""The original's text clean-up inside the TensorFlow graph.

In the original's order: delete control characters, set CJK characters apart, split at white
space; lower-case; decompose (NFD) and drop nonspacing marks. Splitting off punctuation comes after
that. All of it is a mapping of single characters, except that a capital sigma becomes another
letter at the end of a word.
"""

import functools

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from data.tokenization import unicode_tables
from data.tokenization.normalizer_model import build_normalizer_model

CAPITAL_SIGMA = "\u03a3"
FINAL_SIGMA = "\u03c2"


class Normalizer:
    """Normalises batches of UTF-8 strings as the original does.

    Broken UTF-8 is dropped, as the original drops it from byte strings.

    Args:
        do_lower_case: Whether case is folded.
        strip_accents: Whether text is decomposed and nonspacing marks are dropped; None: as
            `do_lower_case`.
        kept: Characters that are not deleted though they are control characters.

    Attributes:
        deleted: All characters that nothing is left of, and that are no white space.
        dropped_marks: Characters that belong to the one before them and are dropped, as the
            inside of a regular expression's class; None when accents stay.
    """

    def __init__(self, do_lower_case: bool, strip_accents: bool | None = None, kept: str = ""):
        self.do_lower_case = do_lower_case
        if strip_accents is None:
            strip_accents = do_lower_case
        tables = unicode_tables.load_tables()
        self.dropped_marks = unicode_tables.regex_class(tables.marks) if strip_accents else None
        self.deleted = (*tables.removed, *(tables.marks if strip_accents else ()))
        # An eager constant even when the tokenizer is made while a graph is being traced.
        with tf.init_scope():
            model = tf.constant(_mapping_model(do_lower_case, strip_accents, kept))
        self._mapping = tf_text.FastBertNormalizer(model_buffer=model)

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Cleans texts; punctuation and CJK characters are not set apart yet.

        Args:
            texts: string [N], UTF-8.

        Returns:
            string [N]; white space of every kind has become blanks, one for each character.
        """
        return self._mapping.normalize(self._finish_words(texts))

    def normalize_with_places(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.RaggedTensor]:
        """As `normalize`, with the source byte of every byte.

        Args:
            texts: string [N], UTF-8.

        Returns:
            string [N], and int64 [N, (bytes + 1)]: where in the text each byte of the result came
            from, the first byte of a replaced character for all bytes of its replacement; at last
            the text's length.
        """
        # A final sigma takes the place of a capital one, both two bytes long.
        return self._mapping.normalize_with_offsets(self._finish_words(texts))

    def split_words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Normalises and splits into words: string [N] to string [N, (words)].

        A word is what the original's basic tokenization yields: every punctuation and CJK
        character is one of its own.
        """
        apart = tf.strings.regex_replace(self.normalize(texts), _isolated_regex(), r" \1 ")
        return tf.strings.split(apart)

    def _finish_words(self, texts: tf.Tensor) -> tf.Tensor:
        if not self.do_lower_case:
            return texts
        return tf.cond(
            tf.reduce_any(tf.strings.regex_full_match(texts, _ANY_SIGMA)),
            lambda: tf.strings.regex_replace(texts, _final_sigma_regex(), _REWRITE_SIGMA),
            lambda: tf.identity(texts),
        )


# One pass over the text; a batch without any capital sigma costs no more than this.
_ANY_SIGMA = f"(?s).*{CAPITAL_SIGMA}.*"
_REWRITE_SIGMA = rf"\1{FINAL_SIGMA}\2"


@functools.lru_cache(maxsize=1)
def _final_sigma_regex() -> str:
    """A capital sigma with a cased letter before it in the word and none after it."""
    tables = unicode_tables.load_tables()
    skipped = unicode_tables.regex_class(tables.case_ignorable + tables.removed)
    cased = unicode_tables.regex_class(tables.cased)
    return f"([{cased}][{skipped}]*){CAPITAL_SIGMA}([{skipped}]*(?:[^{cased}{skipped}]|$))"


@functools.lru_cache(maxsize=1)
def _isolated_regex() -> str:
    """One character that is always a word of its own."""
    tables = unicode_tables.load_tables()
    return f"([{unicode_tables.regex_class(tables.punctuation + unicode_tables.CJK_RANGES)}])"


@functools.lru_cache(maxsize=4)
def _mapping_model(do_lower_case: bool, strip_accents: bool, kept: str) -> np.ndarray:
    """The character mapping as the op takes it: uint8 [bytes]."""
    tables = unicode_tables.load_tables()
    mapping: dict[bytes, bytes] = {}

    def put(code: int, replacement: str) -> None:
        mapping[chr(code).encode()] = replacement.encode()

    folded = tables.lowered if do_lower_case else {}
    if strip_accents:
        marks = dict.fromkeys(unicode_tables.code_points(tables.marks), "")
        hangul = {code: unicode_tables.strip_marks(chr(code)) for code in range(0xAC00, 0xD7A4)}
        stripped = hangul | tables.stripped | marks
        folded = stripped | {code: text.translate(stripped) for code, text in folded.items()}
    for code, target in folded.items():
        put(code, target)
    for code in unicode_tables.code_points(tables.space):
        if code != ord(" "):
            put(code, " ")
    for code in unicode_tables.code_points(tables.removed):
        if chr(code) not in kept:
            put(code, "")
    mapping.update(dict.fromkeys(_broken_utf8(), b""))
    return np.frombuffer(build_normalizer_model(mapping), np.uint8)


def _broken_utf8() -> list[bytes]:
    """Every piece that the op may step over as one unit and that is not a whole character."""
    pieces = [bytes([byte]) for byte in range(0x80, 0x100)]
    for lead in range(0xE0, 0xF5):
        for second in range(0x80, 0xC0):
            piece = bytes([lead, second])
            rest = b"\x80" if lead < 0xF0 else b"\x80\x80"
            try:
                (piece + rest).decode()
            except UnicodeDecodeError:
                continue
            pieces.append(piece)
            if lead >= 0xF0:
                pieces.extend(piece + bytes([third]) for third in range(0x80, 0xC0))
    return pieces
