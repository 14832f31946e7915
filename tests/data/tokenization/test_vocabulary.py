"""Vocabulary files that aren't one."""

import pytest

from data.errors import DataError
from data.tokenization import Tokenizer
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


@pytest.mark.parametrize("capital", [True, False])
def test_a_vocabulary_of_the_other_case_is_told(tmp_path, caplog, capital):
    """Nothing else may tell it: such a model's texts would silently lose their capitals."""
    words = [a + b for a in ("ABCDEFGHIJ" if capital else "abcdefghij") for b in "klmnopqrst"]
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join([*SPECIAL_TOKENS, *words]))
    Tokenizer(str(path), do_lower_case=not capital)
    assert caplog.text == ""
    for _ in range(2):
        Tokenizer(str(path), do_lower_case=capital)
    kind = "cased" if capital else "lower-cased"
    assert caplog.text.count(f"so it is {kind}, but --do_lower_case is {capital}") == 1
    # Digits and signs have no case.
    path.write_text("\n".join([*SPECIAL_TOKENS, *map(str, range(1000)), "A", "b"]))
    caplog.clear()
    for lower in (True, False):
        Tokenizer(str(path), do_lower_case=lower)
    assert caplog.text == ""
