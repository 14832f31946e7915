"""Bytes to text: the encoding that the flag names, and the one that a wrong one may be."""

import pytest

from data.errors import DataError
from data.files.encodings import codec_of, decoded, likely_encoding

FRENCH = "Le café était fermé.\nÇa va, garçon – naïve «œuvre».\n"


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        *((name, FRENCH) for name in ("utf-8", "UTF8", "utf_8", "cp1252", "utf-16", "utf-16-le")),
        ("latin-1", "café\n"),
        ("gb18030", "我爱北京天安门\n"),
        ("shift_jis", "日本語\n"),
    ],
)
def test_text_of_an_encoding(encoding, text):
    assert decoded(text.encode(encoding), "f", encoding) == text


def test_utf8_may_have_a_byte_order_mark():
    for encoding in (None, "utf-8", "UTF_8", "utf8"):
        assert decoded("\ufeffé".encode(), "f", encoding) == "é"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32-le"])
def test_no_codec_leaves_a_byte_order_mark(encoding):
    text = "é" if encoding == "utf-16" else "\ufeffé"
    assert decoded(text.encode(encoding), "f", encoding) == "é"


@pytest.mark.parametrize("name", ["", "utf-9", "base64", "rot13", "idna\0"])
def test_no_encoding_of_text(name):
    with pytest.raises(DataError, match=r"--encoding is .*; expected a name such as utf-8"):
        codec_of(name)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", FRENCH),
        ("utf-16", FRENCH),
        ("utf-16-le", FRENCH),
        ("utf-16-be", FRENCH),
        ("utf-8", FRENCH),
        ("gb18030", "我爱北京天安门\n今天天气很好\n"),
        ("cp1251", "Привет, как твои дела сегодня\n"),
        # Not one of Windows' characters.
        ("latin-1", "caf\xe9 \x81\n"),
    ],
)
def test_likely_encoding(encoding, text):
    assert likely_encoding(text.encode(encoding)) == encoding


CHINESE = "我爱北京天安门。\n" * 60_000  # more than what is looked at


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("damage", [b"", b"\xff", b"\xe6\xff\xff"])
def test_utf8_with_some_damage_is_utf8(before, damage):
    data = CHINESE.encode()
    assert likely_encoding(b"a" * before + data[:900] + damage + data[900:]) == "utf-8"
    german = "Die Größe der Straße ist schön.\n" * 3
    assert likely_encoding(german.encode() + damage[:1]) == "utf-8"


@pytest.mark.parametrize("text", ["Süße Füße\n", "text\nSüße Füße\nsehr süß\n"])
def test_two_letters_with_accents_are_no_chinese_character(text):
    assert likely_encoding(text.encode("cp1252")) == "cp1252"


def test_no_other_encoding_is_advised_for_damage():
    german = ("Die Größe der Straße ist schön.\n" * 9).encode()
    with pytest.raises(DataError, match=r"f:10: .* not UTF-8, as the rest is: .*damaged.*"):
        decoded(german + b"\xff", "f", "utf-8")
    with pytest.raises(DataError, match=r"f:2: .* not utf-16, as the rest is: .*cut within"):
        decoded("Größe\nx".encode("utf-16")[:-1], "f", "utf-16")


def test_what_is_said_of_a_wrong_one():
    data = b"\xef\xbb\xbfone\r\ntwo caf\xe9 \n"
    with pytest.raises(DataError) as error:
        decoded(data, "own.csv", "utf-8")
    message = str(error.value)
    assert message.startswith("own.csv:2: found the bytes b'\\xe9 \\n' (from byte 16 of the file")
    assert data[15] == 0xE9
    assert "which are not UTF-8. The text looks like cp1252: give --encoding=cp1252" in message
    with pytest.raises(DataError, match=r"f:1: .* not ascii\. .* --encoding=utf-8"):
        decoded("é".encode(), "f", "ascii")
    # Where no flag tells another one, none is named.
    with pytest.raises(DataError, match=r"own\.csv:2: .* not UTF-8; convert the text to UTF-8\.$"):
        decoded(data, "own.csv")


def test_line_of_an_encoding_of_two_bytes():
    # U+0A0A has newlines in its bytes only.
    data = "\u0a0a\nb\n".encode("utf-16-le") + b"\x00\xd8a\x00"
    with pytest.raises(DataError, match="f:3: found the bytes") as error:
        decoded(data, "f", "utf-16-le")
    assert "byte 9 of the file" in str(error.value)


def test_utf8_that_is_read_as_another_is_warned_of(caplog):
    assert decoded("café".encode(), "own.csv", "latin-1") == "cafÃ©"
    assert "own.csv is read as latin-1, and is UTF-8 by its bytes" in caplog.text
    caplog.clear()
    decoded(b"cafe", "f", "latin-1")
    decoded("café".encode("latin-1"), "f", "latin-1")
    assert not caplog.text
