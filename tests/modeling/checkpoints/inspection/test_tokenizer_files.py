"""A vocabulary that only tokenizer.json holds, as transformers 5 leaves it."""

import json
import os
import subprocess
import sys

import pytest

import modeling
from data.tokenization import Tokenizer
from modeling import checkpoints
from modeling.checkpoints.inspection.listing import describe_release
from modeling.checkpoints.inspection.tokenizer_files import vocabulary_beside, vocabulary_tokens
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.models import BertModel
from tests.scripts import ROOT

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "een", "##s", "twee", "[unused0]"]
CONFIG = BertConfig(len(VOCAB), 8, 1, 2, 16, max_position_embeddings=16)


def tokenizer_json(tokens=VOCAB, added=(), **model):
    vocabulary = {token: number for number, token in reversed([*enumerate(tokens)])}
    listed = [{"id": number, "content": token} for number, token in added]
    return json.dumps(
        {
            "added_tokens": [{"id": 0, "content": tokens[0]}, *listed],
            "normalizer": {"type": "BertNormalizer", "lowercase": False, "strip_accents": None},
            "model": {"type": "WordPiece", "vocab": vocabulary} | model,
        }
    )


@pytest.fixture
def folder(tmp_path):
    """As from a hub: weights, configuration and tokenizer.json."""
    model = tmp_path / "model"
    tokenizer = Tokenizer.from_vocab(VOCAB)
    modeling.save_pretrained(model, BertModel(CONFIG), tokenizer, "huggingface")
    for name in ("vocab.txt", "tokenizer_config.json"):
        (model / name).unlink()
    (model / "tokenizer.json").write_text(tokenizer_json())
    return model


def test_a_model_has_its_tokenizer(folder, tmp_path):
    opened = modeling.from_pretrained(folder)
    assert opened.tokenizer.vocab == VOCAB and opened.tokenizer.do_lower_case is False
    assert opened.tokenizer.tokenize(["twee eens"]).to_list() == [[7, 5, 6]]
    assert f"Vocabulary: {folder / 'tokenizer.json'}, 9 tokens." in describe_release(str(folder))
    # Written by the command, and from Python; also where it lies.
    checkpoints.convert(folder, tmp_path / "out", "tf1")
    modeling.save_pretrained(tmp_path / "own", opened.model, opened.tokenizer)
    checkpoints.convert(folder, folder, "huggingface")
    for written in (tmp_path / "out", tmp_path / "own", folder):
        assert (written / "vocab.txt").read_text().splitlines() == VOCAB
        assert modeling.from_pretrained(written).tokenizer.do_lower_case is False


def test_vocab_txt_comes_first(folder):
    (folder / "vocab.txt").write_text("\n".join([*VOCAB[:-1], "drie"]))
    assert vocabulary_beside(str(folder)) == str(folder / "vocab.txt")
    assert modeling.from_pretrained(folder).tokenizer.vocab[-1] == "drie"


def test_added_tokens_are_tokens(folder, caplog):
    (folder / "tokenizer.json").write_text(tokenizer_json(added=[(9, "covid"), (10, "<e1>")]))
    assert vocabulary_tokens(vocabulary_beside(str(folder))) == [*VOCAB, "covid", "<e1>"]
    with pytest.raises(ModelingError, match="has 11 tokens, but the model's vocab_size is 9"):
        modeling.from_pretrained(folder)
    assert "1 added tokens that hold blanks or punctuation: <e1>" in caplog.text
    assert "not in its vocab.txt" not in caplog.text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (tokenizer_json(added=[(10**9, "covid")]), "aren't different whole numbers from 0 on"),
        (tokenizer_json(added=[(3, "covid")]), "aren't different whole numbers"),
        (tokenizer_json(added=[([], "covid")]), "aren't different whole numbers"),
        (tokenizer_json([*VOCAB, "a\nb"]), "or a token holds a line's end"),
        (tokenizer_json([*VOCAB, "\ud800a"]), "or half a character"),
        (tokenizer_json(continuing_subword_prefix="@@"), "marks pieces that go on a word by '@@'"),
        ("{", "is no JSON object"),
    ],
)
def test_damaged_ones_are_refused(folder, content, words):
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(ModelingError, match=rf"tokenizer\.json .*{words}"):
        modeling.from_pretrained(folder)


def test_ids_without_a_token(tmp_path):
    """As where a token stood twice in the vocab.txt that it was made from."""
    ids = {token: number for number, token in enumerate([*VOCAB, "een"])}
    (tmp_path / "tokenizer.json").write_text(tokenizer_json(vocab=ids))
    assert vocabulary_tokens(vocabulary_beside(str(tmp_path))) == [
        *VOCAB[:5],
        *("", "##s", "twee", "[unused0]", "een"),
    ]


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        '{"model": {"vocab": []}}',
        '{"model": {"vocab": {}}}',
        '{"model": {"vocab": {"a": 0}, "merges": []}}',
        '{"config": {"a": 1}}',
    ],
)
def test_others_hold_no_vocabulary(tmp_path, content):
    (tmp_path / "tokenizer.json").write_text(content)
    assert vocabulary_beside(str(tmp_path)) is None


def test_the_file_goes_with_its_process(folder):
    """And not with a child that was forked from it."""
    code = (
        "import os, sys; from modeling.checkpoints.inspection import tokenizer_files\n"
        "path = tokenizer_files.vocabulary_beside(sys.argv[1]); child = os.fork()\n"
        "if child: os.waitpid(child, 0); assert os.path.exists(path); print(path)\n"
        "sys.exit()"
    )
    command = [sys.executable, "-c", code, folder]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert done.stdout.strip().endswith("vocab.txt") and not os.path.exists(done.stdout.strip())
