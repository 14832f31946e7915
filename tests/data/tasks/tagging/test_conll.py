"""Reading sentences with tags: columns and JSON lines, clean and as they are found."""

import gzip
import json
import types

import pytest

from data.errors import DataError
from data.files.bad_rows import BadRows
from data.tasks.tagging import reading
from data.tasks.tagging.conll import (
    ConllSentence,
    TagFormat,
    number_of_conll_documents,
    read_conll_sentences,
)
from data.tasks.tagging.rows import TaggingSettings
from data.tasks.tagging.tags import TagSet
from data.tokenization import Tokenizer

PLAIN = "-DOCSTART- -X- O O\n\nEU NNP I-ORG\nsaid VB O\n\nBonn NNP I-LOC\n"
WANTED = [(("EU", "said"), ("B-ORG", "O")), (("Bonn",), ("B-LOC",))]


def read(tmp_path, content, labelled=True, name="f.txt", **format):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_conll_sentences(str(path), TagFormat(**format), labelled)


def pairs(sentences):
    return [(sentence.words, sentence.tags) for sentence in sentences]


@pytest.mark.parametrize(
    "content",
    [
        PLAIN,
        PLAIN.removesuffix("\n"),
        PLAIN + "\n\n \n\t\n",
        PLAIN.replace("\n", "\r\n"),
        PLAIN.replace("\n", "\r"),
        "\ufeff" + PLAIN,
        PLAIN.replace(" ", "\t"),
        PLAIN.replace(" ", "   \t"),
        PLAIN.replace("said VB O\n\n", " said VB O \n \t\n"),
        gzip.compress(PLAIN.encode(), mtime=0),
        PLAIN.replace("-DOCSTART- -X- O O", "-DOCSTART-\t(7)"),
    ],
)
def test_one_content_in_many_forms(tmp_path, content):
    assert pairs(read(tmp_path, content)) == WANTED


@pytest.mark.parametrize(
    "content",
    [
        "# newdoc\n# sent_id = 1\n# text = EU said\n1\tEU\tI-ORG\n2\tsaid\tO\n\n"
        "# id x7\tdomain=en\n1\tBonn\tI-LOC\n",
        "-DOCSTART-\n# id 17 domain=en\n1 EU I-ORG\n2 said O\n\n# id 18 domain=en\n1 Bonn I-LOC\n",
    ],
)
def test_lines_that_tell_of_a_sentence_are_no_words(tmp_path, content):
    sentences = read(tmp_path, content, token_column="1", tag_column="2")
    assert pairs(sentences) == WANTED
    assert sentences[1].source.endswith(":8" if "newdoc" in content else ":7")


def test_the_word_hash(tmp_path):
    words = "# POS=NN O\n# O O\n\n# = O\nx = B-X\n"
    assert pairs(read(tmp_path, words)) == [
        (("#", "#"), ("O", "O")),
        (("#", "x"), ("O", "B-X")),
    ]
    assert pairs(read(tmp_path, "# O Typo=Yes\nid O _\n", tag_column="1")) == [
        (("#", "id"), ("O", "O"))
    ]
    assert pairs(read(tmp_path, "#\tB-X\nx y\tO\n")) == [(("#", "x y"), ("B-X", "O"))]


def test_places(tmp_path):
    sentences = read(tmp_path, PLAIN + "\n-DOCSTART- -X- O O\n-DOCSTART- x\nA B O\n")
    assert sentences[0] == ConllSentence(("EU", "said"), ("B-ORG", "O"), 0, f"{tmp_path}/f.txt:3")
    assert [sentence.document for sentence in sentences] == [0, 0, 1]
    assert [sentence.source[-3:] for sentence in sentences] == ["t:3", "t:6", ":10"]
    assert number_of_conll_documents(sentences) == 2


def test_columns(tmp_path):
    content = "x EU B-ORG y\nx is O y\n"
    wanted = [(("EU", "is"), ("B-ORG", "O"))]
    assert pairs(read(tmp_path, content, token_column="1", tag_column="2")) == wanted
    assert pairs(read(tmp_path, content, token_column="-3", tag_column="-2")) == wanted
    numbered = "0 EU B-ORG\n\n0 -DOCSTART- O\n\n0 is O\n"
    sentences = read(tmp_path, numbered, token_column="1", tag_column="2")
    assert [sentence.document for sentence in sentences] == [0, 1]
    # With tabs a word may hold blanks, and be nothing at all.
    sentences = read(tmp_path, "New York\tB-LOC\n\tO\n\u3000\tO\n")
    assert pairs(sentences) == [(("New York", "", "\u3000"), ("B-LOC", "O", "O"))]


def test_separators_are_blanks_and_tabs_only(tmp_path):
    words = ["a\u00a0b", "\u3000", "\u200b", "\u2028", "\x85", "\x0b\x0c"]
    sentences = read(tmp_path, "".join(f"{word} O\n" for word in words))
    assert sentences[0].words == tuple(words)


def test_words_without_tags(tmp_path):
    assert pairs(read(tmp_path, "EU\nis\n\nx\n", False)) == [(("EU", "is"), None), (("x",), None)]
    assert pairs(read(tmp_path, "EU O\nis O\n", False)) == [(("EU", "is"), ("O", "O"))]


def test_json_lines(tmp_path):
    rows = [
        {"tokens": ["New York", "", "a\nb"], "tags": ["S-LOC", "O", "O"], "document": 1},
        {"tokens": [], "tags": [], "document": 1},
        {"tokens": ["x"], "tags": ["O"], "document": 2},
    ]
    content = "\n\n".join(map(json.dumps, rows))
    sentences = read(tmp_path, content, name="f.jsonl", document_column="document")
    assert pairs(sentences)[0] == (("New York", "", "a\nb"), ("B-LOC", "O", "O"))
    assert pairs(sentences)[1] == ((), ())
    assert [sentence.document for sentence in sentences] == [0, 0, 1]
    renamed = content.replace("tokens", "w").replace("tags", "t")
    format = {"token_column": "w", "tag_column": "t", "model_scheme": "iobes"}
    assert read(tmp_path, renamed, name="f.jsonl", **format)[0].tags == ("S-LOC", "O", "O")
    assert read(tmp_path, renamed, False, name="f.jsonl", token_column="w")[0].tags is None


def test_repair_is_reported(tmp_path, caplog):
    content = "a O\nb M-PER\nc E-PER\nd B-LOC\ne O\n"
    with caplog.at_level("INFO"):
        sentences = read(tmp_path, content)
    assert sentences[0].tags == ("O", "B-PER", "I-PER", "B-LOC", "O")
    text = caplog.text
    assert "tags in BMES" in text and "2 of 5 tags" in text
    assert "line 2: M-PER behind O; line 4: B-LOC behind E-PER" in text
    caplog.clear()
    with caplog.at_level("INFO"):
        assert read(tmp_path, "a I-PER\nb B-PER\n", scheme="iob2")[0].tags == ("B-PER", "B-PER")
    assert "line 1: I-PER behind the sentence's beginning" in caplog.text
    caplog.clear()
    with caplog.at_level("WARNING"):
        read(tmp_path, "a I-PER\nb B-PER\n\nc I-LOC\n")
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ("", {}, "holds no sentence"),
        ("\n\n", {}, "holds no sentence"),
        ("-DOCSTART- O\n\n", {}, "holds no sentence"),
        ("a O\nb\n", {}, "f.txt:2: this line has 1 columns.*2 was expected"),
        ("a O\n\nb x O\n", {}, "f.txt:3: this line has 3 columns"),
        ("\na\nb\n", {}, "f.txt:2: there is no column -1 with a tag.*--tag_column"),
        ("a x O\n", {"tag_column": "3"}, "f.txt:1: there is no column 3"),
        ("a O\n", {"token_column": "4", "tag_column": "1"}, "f.txt:1.*column 4 of the words"),
        ("a x O\n", {"token_column": "5"}, "f.txt:1: there is no column 5 of the words.*has 3"),
        ("a x O\n", {"token_column": "-4"}, "no column -4 of the words.*--token_column"),
        ("a O\n", {"tag_column": "ner"}, "--tag_column is 'ner'.*a number"),
        ("a O\nb PER\n", {}, "f.txt:2: the tag is 'PER'"),
        ("a O\nb S-PER\n", {"scheme": "iob2"}, "f.txt:2: the tag is 'S-PER'.*IOB2"),
        ("a\tO\nb\t\n", {}, "f.txt:2: the tag is ''"),
        ("a M-X\nb L-X\n", {}, "no scheme has together"),
        (b"a O\n\xff O\n", {}, "f.txt:2.*UTF-8"),
        ("{", {"name": "f.jsonl"}, "f.jsonl:1.*isn't JSON"),
        ('{"tokens": ["a"]}', {"name": "f.jsonl"}, "f.jsonl:1: the field 'tags' is missing"),
        ('{"tags": ["O"]}', {"name": "f.jsonl"}, "f.jsonl:1: the field 'tokens' is missing"),
        ('{"tokens": [1], "tags": ["O"]}', {"name": "f.jsonl"}, "f.jsonl:1.*list of strings"),
        ('{"tokens": ["a"], "tags": []}', {"name": "f.jsonl"}, "f.jsonl:1: 1 words.*0 tags"),
        ('\n{"tokens": ["a"], "tags": ["x"]}', {"name": "f.jsonl"}, "f.jsonl:2: the tag is 'x'"),
    ],
)
def test_bad_input(tmp_path, content, options, words):
    with pytest.raises(DataError, match=f"(?s){words}"):
        read(tmp_path, content, **options)


def test_bad_sentences_are_told_together_or_left_out(tmp_path, caplog):
    content = "a O\nb O\n\nc x y\nd O\n\ne O\n\nf O\ng PER\n\nh B-PER\n"
    with pytest.raises(DataError) as error:
        read(tmp_path, content)
    for part in ("f.txt:4: this line has 3", "f.txt:10: the tag is 'PER'", "2 of 5 sentences"):
        assert part in str(error.value)
    rows = [{"tokens": [w], "tags": [t]} for w, t in (("a", "O"), ("b", "x"), ("c", "B-X"))]
    lines = "".join(json.dumps(row) + "\n" for row in rows) + "{\n{}\n"
    lines += "".join(json.dumps(row) + "\n" for row in rows[::2])
    with pytest.raises(
        DataError, match=r"(?s)jsonl:2: the tag.*jsonl:4: this line isn't JSON.*jsonl:5: the field"
    ):
        read(tmp_path, lines, name="f.jsonl")
    for name, text, words in (("f.txt", content, ["ab", "e", "h"]), ("f.jsonl", lines, "acac")):
        bad_rows = BadRows(skip=True)
        path = tmp_path / name
        path.write_text(text)
        sentences = read_conll_sentences(str(path), TagFormat(), True, bad_rows)
        assert ["".join(sentence.words) for sentence in sentences] == [*words]
        assert bad_rows.skipped == {str(path): 2 if name == "f.txt" else 3}
    assert "Left out 2 of 5 sentences" in caplog.text


def test_left_out_sentences_are_said_with_the_score(tmp_path):
    tokenizer = Tokenizer.from_vocab(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"ab"])
    (tmp_path / "f.txt").write_text("a O\n\nb B-X\n\na x\n")
    (tmp_path / "good.txt").write_text("a O\n\nb B-X\n")
    values = {"data_dir": str(tmp_path), "document_context": False, "scheme": "auto"}
    values |= {"token_column": None, "tag_column": None, "document_column": None}
    values |= {"encoding": "utf-8"}
    splits = []
    for name in ("f.txt", "good.txt"):
        bad_rows = BadRows(skip=True)
        args = types.SimpleNamespace(**values), name, True, "iob2", bad_rows
        how = (tokenizer, TagSet("iob2", ("O", "B-X", "I-X")), TaggingSettings(8), bad_rows)
        splits.append(reading.tokenised_tagging("dev", reading.read_tagging_file(*args), *how))
    assert [split.left_out for split in splits] == [{"skipped_rows": 1}, {}]
    assert splits[0].fingerprint == splits[1].fingerprint


@pytest.mark.parametrize(
    ("scheme", "inner", "end"), [("iobes", "I", "E"), ("bmes", "M", "E"), ("bilou", "I", "L")]
)
def test_entities_that_break_off(tmp_path, caplog, scheme, inner, end):
    """Schemes that mark an entity's last word show where words or tags were lost."""

    def told(content):
        caplog.clear()
        return read(tmp_path, content, scheme=scheme)[0].tags, caplog.text

    tags, text = told(f"a B-X\nb {inner}-X\n")
    assert tags == ("B-X", "I-X") and "f.txt: 1 of 2 tags" in text
    assert f"line 2: {inner}-X behind B-X, and the sentence ends inside the entity" in text
    assert "correct them" in text and "--scheme" in text
    _, text = told(f"a B-X\n\nb O\nc B-X\nd {end}-X\n")
    assert "line 1: B-X behind the sentence's beginning, and the sentence ends inside" in text
    tags, text = told("a B-X\nb O\n")
    assert "and the entity breaks off before O" in text and tags == ("B-X", "O")
    assert "can't stand" not in told(f"a B-X\nb {inner}-X\nc {end}-X\n")[1]


@pytest.mark.parametrize("scheme", ["iob1", "iob2"])
def test_entities_at_the_end_of_schemes_without_an_end(tmp_path, caplog, scheme):
    first = "B" if scheme == "iob2" else "I"
    assert read(tmp_path, f"a {first}-X\nb I-X\n", scheme=scheme)[0].tags == ("B-X", "I-X")
    assert "can't stand" not in caplog.text


def test_no_file(tmp_path):
    with pytest.raises(DataError, match="can't be read"):
        read_conll_sentences(str(tmp_path / "absent"), TagFormat(), True)


def test_real_sets(shared_data):
    """Sentences as the publishers count them; entities as of the CoNLL task's paper (Table 2)."""
    sentences = read_conll_sentences(str(shared_data / "conll2003/eng.testb"), TagFormat(), True)
    assert len(sentences) == 3453 and number_of_conll_documents(sentences) == 231
    assert sum(len(sentence.words) for sentence in sentences) == 46435
    begun = [tag[2:] for sentence in sentences for tag in sentence.tags if tag[0] == "B"]
    counts = {kind: begun.count(kind) for kind in ("LOC", "MISC", "ORG", "PER")}
    assert counts == {"LOC": 1668, "MISC": 702, "ORG": 1661, "PER": 1617}
    weibo = read_conll_sentences(
        str(shared_data / "chinese/weibo_ner/dev.all.bmes"), TagFormat(), True
    )
    assert len(weibo) == 270 and {tag[0] for s in weibo for tag in s.tags} == {*"OBI"}


def test_files_in_another_encoding(tmp_path):
    path = tmp_path / "esp.train"
    path.write_bytes("España B-LOC\n".encode("latin-1"))
    (sentence,) = read_conll_sentences(str(path), TagFormat(encoding="latin-1"), True)
    assert sentence.words == ("España",)
    with pytest.raises(DataError, match=r"esp\.train:1: .* --encoding=cp1252"):
        read_conll_sentences(str(path), TagFormat(), True)


CHINESE = "我 爱 北 京\tO O B-LOC I-LOC\n\n 好 \tO\n-DOCSTART-\n天 安 门\tB-LOC I-LOC I-LOC\n"


def test_a_sentence_per_line(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(CHINESE)
    sentences = read_conll_sentences(str(path), TagFormat(model_scheme="iobes"), True)
    assert ["".join(sentence.words) for sentence in sentences] == ["我爱北京", "好", "天安门"]
    assert sentences[0].tags == ("O", "O", "B-LOC", "E-LOC")
    assert [s.source.rpartition(":")[2] for s in sentences] == ["1", "3", "5"]
    assert [s.document for s in sentences] == [0, 0, 1]
    # A file to tag may have sentences without tags.
    path.write_text(f"{CHINESE}我 爱\n我\t\n")
    *_, bare, tab = read_conll_sentences(str(path), TagFormat(), False)
    assert (bare.words, bare.tags, tab.words, tab.tags) == (("我", "爱"), None, ("我",), None)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("我 爱\tO", ["train.txt:6", "2 words before the tab and 1 tags behind it"]),
        ("我 爱", ["train.txt:6", "2 words before the tab and 0 tags"]),
        ("我 爱\tO X-LOC", ["train.txt:6", "the tag is 'X-LOC'"]),
    ],
)
def test_bad_lines_of_sentences(tmp_path, line, words):
    path = tmp_path / "train.txt"
    path.write_text(f"{CHINESE}{line}\n")
    with pytest.raises(DataError) as error:
        read_conll_sentences(str(path), TagFormat(), True)
    assert all(word in str(error.value) for word in words)
    bad_rows = BadRows(skip=True)
    assert len(read_conll_sentences(str(path), TagFormat(), True, bad_rows)) == 3
    assert bad_rows.skipped == {str(path): 1}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("EU\tB-ORG\nNew York\tB-LOC\n\n.\tO\n", ("EU", "New York")),
        ("New York\tx\tB-LOC\n", ("New York",)),
        # Not all lines have tabs, so that blanks separate columns as well.
        ("EU\tB-NP B-ORG\nin O O\n", ("EU", "in")),
    ],
)
def test_columns_are_no_sentences(tmp_path, text, words):
    path = tmp_path / "train.txt"
    path.write_text(text)
    assert read_conll_sentences(str(path), TagFormat(), True)[0].words == words


def test_named_columns_are_columns(tmp_path):
    (tmp_path / "train.txt").write_text("a b\tO O\n")
    with pytest.raises(DataError, match="the tag is 'O O'"):
        read_conll_sentences(str(tmp_path / "train.txt"), TagFormat(tag_column="-1"), True)
