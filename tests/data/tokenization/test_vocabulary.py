"""Vocabulary files that aren't one."""

import pytest

from data.errors import DataError
from data.tokenization.vocabulary import SPECIAL_TOKENS, load_vocab


def test_a_folder_is_named_with_the_file_in_it(tmp_path):
    with pytest.raises(DataError, match=r"is a folder; a file .* Give the .*/vocab\.txt that"):
        load_vocab(str(tmp_path))


def test_a_token_of_ten_million_characters_is_named_by_its_line(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL_TOKENS, "a" * 10_000_000, "b"]))
    with pytest.raises(DataError, match=r"vocab\.txt:6: this token has 10,000,000 characters"):
        load_vocab(str(path))
    path.write_text("\n".join([*SPECIAL_TOKENS, "a" * 1000]))
    assert len(load_vocab(str(path))) == 6
