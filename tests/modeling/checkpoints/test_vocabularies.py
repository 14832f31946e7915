"""Checkpoints tell which vocabulary they belong to, and refuse another of equal size."""

import logging
import types

import numpy as np
import pytest

from data.tokenization import Tokenizer
from data.tokenization.vocabulary import vocabulary_checksum
from modeling import checkpoints
from modeling.checkpoints import tf1
from modeling.checkpoints.files import staged
from modeling.errors import ModelingError
from modeling.training.given_model import check_run_vocabulary

TOKENS = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two"]
SWAPPED = [*TOKENS[:-2], "two", "one"]
EXTENDED = ["[PAD]", "new", *TOKENS[2:]]


def write_vocab(path, tokens=TOKENS, end="\n"):
    path.write_text(end.join([*tokens, ""]), newline="")
    return path


@pytest.fixture
def saved(tmp_path):
    """A checkpoint of a run with the note beside it."""
    described = checkpoints.describe_vocabulary(write_vocab(tmp_path / "own.txt"))
    with staged(str(tmp_path)) as temporary:
        checkpoints.stage_vocabulary(f"{temporary}/model.ckpt-1", described)
        tf1.write_bundle(f"{temporary}/model.ckpt-1", {"x": np.zeros(2, np.float32)})
    return tmp_path / "model.ckpt-1"


def test_description(tmp_path):
    described = checkpoints.describe_vocabulary(write_vocab(tmp_path / "v", TOKENS))
    assert described["tokens"] == len(TOKENS) and described["unused"] == [[1, 2]]
    # As data's own checksum of the tokens, which records carry.
    odd = ["\ufeff[PAD]", *TOKENS[1:], "é", "", "\u2028", "x\u2028y"]
    for end in ("\n", "\r\n"):
        path = write_vocab(tmp_path / "odd", odd, end)
        tokens = Tokenizer(str(path)).vocab
        assert checkpoints.describe_vocabulary(path)["checksum"] == vocabulary_checksum(tokens)


@pytest.mark.parametrize("tokens", [TOKENS, EXTENDED, [*TOKENS, "three"]])
def test_the_same_ids_are_taken(saved, tmp_path, tokens):
    path = write_vocab(tmp_path / "given.txt", tokens, "\r\n")
    checkpoints.check_vocabulary(saved, path)


@pytest.mark.parametrize("tokens", [SWAPPED, TOKENS[:-1], ["[PAD]", "x", *TOKENS[1:]]])
def test_other_ids_are_refused(saved, tmp_path, tokens):
    path = write_vocab(tmp_path / "given.txt", tokens)
    with pytest.raises(ModelingError, match=r"another vocabulary than \S+given.txt, as \S+vocab"):
        checkpoints.check_vocabulary(saved, path)


def test_unused_tokens_are_not_taken_for_words(tmp_path):
    """A model that was trained with words there isn't used without them."""
    own = checkpoints.describe_vocabulary(write_vocab(tmp_path / "own.txt", EXTENDED))
    with staged(str(tmp_path)) as temporary:
        checkpoints.stage_vocabulary(f"{temporary}/a.ckpt", own)
        tf1.write_bundle(f"{temporary}/a.ckpt", {"x": np.zeros(2, np.float32)})
    with pytest.raises(ModelingError, match="another vocabulary"):
        checkpoints.check_vocabulary(tmp_path / "a.ckpt", write_vocab(tmp_path / "given.txt"))


def test_a_release_is_told_by_its_vocab_txt(saved, tmp_path, caplog):
    (tmp_path / "model.ckpt-1.vocabulary").unlink()
    given = write_vocab(tmp_path / "given.txt", SWAPPED)
    caplog.set_level(logging.INFO)
    checkpoints.check_vocabulary(saved, given)
    assert "Not checked" in caplog.text
    write_vocab(tmp_path / "vocab.txt")
    with pytest.raises(ModelingError, match=r"another vocabulary.*vocab.txt tells"):
        checkpoints.check_vocabulary(saved, given)


def test_records_tell_their_vocabulary(saved, tmp_path):
    """Pre-training's own may be known by its checksum alone."""
    own, start = checkpoints.describe_vocabulary(tmp_path / "own.txt"), str(saved)
    agreed = checkpoints.agreed_vocabulary
    assert agreed(start, str(tmp_path / "own.txt"), None) == own
    assert agreed(start, None, own["checksum"]) == {"checksum": own["checksum"]}
    assert agreed(start, None, None) is None
    other = vocabulary_checksum(EXTENDED)
    with pytest.raises(ModelingError, match="records were made with another vocabulary"):
        agreed(start, None, other)
    assert agreed(start, str(write_vocab(tmp_path / "new.txt", EXTENDED)), other)["tokens"] == 9
    # A note that holds the checksum alone.
    with staged(str(tmp_path)) as temporary:
        checkpoints.stage_vocabulary(f"{temporary}/b.ckpt", {"checksum": own["checksum"]})
        tf1.write_bundle(f"{temporary}/b.ckpt", {"x": np.zeros(2, np.float32)})
    checkpoints.check_vocabulary(tmp_path / "b.ckpt", tmp_path / "own.txt")
    with pytest.raises(ModelingError, match="another vocabulary"):
        checkpoints.check_vocabulary(tmp_path / "b.ckpt", tmp_path / "new.txt")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"{}", b'"checksum"'])
def test_a_damaged_note_is_said(saved, tmp_path, caplog, content):
    (tmp_path / "model.ckpt-1.vocabulary").write_bytes(content)
    checkpoints.check_vocabulary(saved, write_vocab(tmp_path / "given.txt", SWAPPED))
    assert "model.ckpt-1.vocabulary is damaged" in caplog.text


def test_all_that_a_run_reads_is_checked(saved, tmp_path):
    class Values(types.SimpleNamespace):
        def __contains__(self, name):
            return hasattr(self, name)

    given = str(write_vocab(tmp_path / "given.txt", SWAPPED))
    check_run_vocabulary(Values(vocab_file=given, init_checkpoint=None))
    for values in (
        Values(vocab_file=given, init_checkpoint=str(saved)),
        Values(vocab_file=given, init_checkpoint=None, output_dir=str(tmp_path)),
    ):
        with pytest.raises(ModelingError, match="another vocabulary"):
            check_run_vocabulary(values)
