"""In which encoding the bytes of a text file are read, and what is said where that is wrong."""

import re

from absl import logging

from data.errors import DataError, error_text

UTF8 = "utf-8"
"""The default, with or without a byte order mark."""

_SAMPLE_BYTES = 2**20
# Of the bytes beyond ASCII, in text that is UTF-8 but for damage; of other encodings most are lost.
_LOST_OF_UTF8 = 0.2


def codec_of(encoding: str) -> str:
    """Python's name of the codec that reads an encoding: UTF-8's takes a byte order mark, too.

    Raises:
        DataError: There is no such encoding of text.
    """
    try:
        # Not codecs.lookup, which also finds what makes bytes of bytes, such as base64.
        if "a".encode(encoding).decode(encoding) != "a":
            raise LookupError
    except (LookupError, UnicodeError, ValueError):
        raise DataError(
            f"--encoding is {error_text(encoding)}, which isn't an encoding of text that Python"
            " knows; expected a name such as utf-8, latin-1, cp1252, utf-16 or gb18030."
        ) from None
    return "utf-8-sig" if encoding.lower().replace("_", "-") in ("utf-8", "utf8") else encoding


def decoded(data: bytes, path: str, encoding: str | None = None) -> str:
    """The text of a file's bytes, without a byte order mark.

    Args:
        data: Of the whole file.
        path: Its name.
        encoding: As the flag --encoding says; None: UTF-8, and there is no such flag.

    Raises:
        DataError: They aren't of that encoding; names file, line and byte, and the flag.
    """
    codec = codec_of(encoding or UTF8)
    try:
        text = data.decode(codec)
    except UnicodeDecodeError as error:
        # The codec's own view of the bytes, which lacks the byte order mark.
        before = error.object[: error.start].decode(codec, "ignore")
        line = 1 + before.count("\n") + before.count("\r") - before.count("\r\n")
        wrong = error.object[error.start : error.start + 4]
        byte = len(data) - len(error.object) + error.start + 1
        where = f" (from byte {byte} of the file on)"
        raise not_decoded(f"{path}:{line}", wrong, encoding, data, where) from error
    if codec != "utf-8-sig" and not data.isascii() and _decodes(data, UTF8):
        logging.warning(
            f"{path} is read as {encoding}, and is UTF-8 by its bytes. If letters with accents or"
            " of other scripts are garbled, leave out --encoding."
        )
    # Codecs that are told the order of bytes keep the mark.
    return text.removeprefix("\ufeff")


def not_decoded(
    source: str, wrong: bytes, encoding: str | None, data: bytes, where: str = ""
) -> DataError:
    """What is raised where a text holds bytes that aren't of its encoding.

    Args:
        source: "file:line".
        wrong: The bytes.
        encoding: As of `decoded`.
        data: The bytes around them, from which the likely encoding is told.
        where: Which of the bytes they are, in words; or nothing.
    """
    found = f"{source}: found the bytes {wrong!r}{where}, which are not"
    if encoding is None:
        return DataError(f"{found} UTF-8; convert the text to UTF-8.")
    called, likely = "UTF-8" if encoding == UTF8 else encoding, likely_encoding(data)
    if codec_of(likely) == codec_of(encoding):
        return DataError(
            f"{found} {called}, as the rest is: the text was damaged, or cut within a character."
            " Repair that line or leave it out; in another encoding the rest would be garbled."
        )
    return DataError(
        f"{found} {called}. The text looks like {likely}: give --encoding={likely}, or the"
        " encoding that it was written in, or convert it to UTF-8."
    )


def likely_encoding(data: bytes) -> str:
    """A guess at the encoding of a text, by its byte order mark, its zeros and its high bytes.

    A few bytes may be damaged, or the last character cut.
    """
    data = data[:_SAMPLE_BYTES]
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    if b"\0" in data:
        return "utf-16-le" if data[1::2].count(0) >= data[::2].count(0) else "utf-16-be"
    # Letters with accents stand alone or in twos among others ("Süße"); two bytes make a Chinese
    # character; and words of another alphabet are high bytes altogether.
    runs = [len(run) for run in re.findall(rb"[\x80-\xff]+", data)]
    lost = len(data) - len(data.decode(UTF8, "ignore").encode(UTF8))
    if lost <= _LOST_OF_UTF8 * sum(runs):
        return UTF8
    beside_letters = re.findall(rb"[A-Za-z][\x80-\xff]{2}|[\x80-\xff]{2}[A-Za-z]", data)
    in_twos = set(runs) == {2} and len(beside_letters) == len(runs)
    if (
        all(run % 2 == 0 for run in runs)
        and not in_twos
        and _decodes(data[: data.rfind(b"\n") + 1], "gb18030")
    ):
        return "gb18030"
    if sum(runs) > 3 * len(runs):
        return "cp1251"
    return "cp1252" if _decodes(data, "cp1252") else "latin-1"


def _decodes(data: bytes, codec: str) -> bool:
    try:
        data.decode(codec)
    except UnicodeDecodeError:
        return False
    return True
