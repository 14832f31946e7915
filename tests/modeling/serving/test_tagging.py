"""The exported tagger against prediction: two ways through the same parts."""

import functools
import random

import numpy as np
import pytest
import tensorflow as tf

from data import batching
from data.tasks.tagging import inputs as ner_inputs
from data.tasks.tagging.conll import ConllSentence
from data.tasks.tagging.rows import TaggingSettings, make_tagging_rows
from data.tasks.tagging.schemes import decode_entities
from data.tasks.tagging.tags import TagSet
from data.tokenization import Tokenizer
from modeling.answers.tags import TagsFromLogits
from modeling.config import BertConfig
from modeling.models import BertTagger
from modeling.serving.export import Export
from modeling.serving.tagging import export_tagger
from modeling.training.engine.evaluation import ReplicaPredictor

LETTERS = [*"abcdefgh", *(f"##{letter}" for letter in "abcdefgh")]
ODD = [
    "",
    "漢",
    "漢字",
    "한",
    "é",
    "e\u0301",
    "😀",
    "x",
    "...",
    "\u200b",
    "fedabc",
    "漢ab",
    "\x00 ",
]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, "漢", "字", ".", "ᄒ", "##ᅡ", "##ᆫ"]
VOCAB += ["'", "s", ",", "(", ")", "-", "’"]
# As another library's model may have them: O isn't the first.
TAGS = TagSet("iob2", ("B-X", "O", "I-X", "B-Y", "I-Y"))
LENGTH = 12


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_vocab(VOCAB)


@pytest.fixture(scope="module")
def model():
    config = BertConfig(
        vocab_size=len(VOCAB),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=LENGTH,
        type_vocab_size=2,
    )
    model = BertTagger(config, len(TAGS))
    model.build()
    rng = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(rng.normal(0, 0.7, variable.shape))
    return model


@pytest.fixture(scope="module")
def loaded(model, tokenizer, tmp_path_factory):
    path = export_tagger(
        model,
        Export(str(tmp_path_factory.mktemp("export")), {}),
        functools.partial(ner_inputs.tag_inputs_from_texts, tokenizer, max_seq_length=LENGTH),
        functools.partial(ner_inputs.tag_inputs_from_words, tokenizer, max_seq_length=LENGTH),
        TAGS.names,
    )
    return tf.saved_model.load(path)


def ask(loaded, signature, **inputs):
    inputs = {name: tf.constant(value, tf.string) for name, value in inputs.items()}
    return {k: v.numpy() for k, v in loaded.signatures[signature](**inputs).items()}


def random_words(draw, most):
    return [draw.choice([*"abcdefgh", *ODD]) for _ in range(draw.randrange(most))]


def predicted(model, tokenizer, texts):
    """Tags and scores as run_ner.py makes them."""
    sentences = [ConllSentence(tuple(words), None, 0, "f:1") for words in texts]
    rows = make_tagging_rows(tokenizer, sentences, TAGS, TaggingSettings(LENGTH))
    shape = batching.Batching(8, batching.batching_length_buckets(LENGTH))
    tagged = ReplicaPredictor(TagsFromLogits(model), "tagged")(
        batching.batches(rows.features, shape, False)
    )
    tags = rows.tags_of_words(tagged[..., 0].astype(int), TAGS)
    return [*zip(tags, rows.of_sentences(tagged[..., 1], 1.0), strict=True)]


def check_entities(got, row, tags, text, words):
    """The entities of a row are those of its tags, at the right places of the text."""
    wanted = decode_entities(tags)
    kinds = [kind.decode() for kind in got["entity_types"][row]]
    assert kinds == [e.type for e in wanted] + [""] * (len(kinds) - len(wanted))
    names = ("starts", "ends", "start_bytes", "end_bytes", "start_words", "end_words")
    places = np.stack([got[f"entity_{name}"][row] for name in names], 1)
    assert (places[len(wanted) :] == -1).all()
    for number, entity in enumerate(wanted):
        start, end, start_byte, end_byte, first, behind = places[number]
        slice_ = text[start:end]
        assert text.encode()[start_byte:end_byte].decode() == slice_
        assert got["entity_texts"][row, number].decode() == slice_
        assert (first, behind) == (entity.start, entity.end)
        least = got["scores"][row, first:behind].min()
        assert got["entity_scores"][row, number] == least
        assert slice_.startswith(words[first]) and slice_.endswith(words[behind - 1])


def test_words_as_prediction(loaded, model, tokenizer):
    draw = random.Random(3)
    texts = [random_words(draw, 40) for _ in range(60)] + [["漢" * 100], ["\u200b"] * 3, []]
    wanted = predicted(model, tokenizer, texts)
    width = max(map(len, texts)) + 2
    got = ask(loaded, "words", words=[words + [""] * (width - len(words)) for words in texts])
    assert got["tags"].shape == got["words"].shape == (len(texts), width)
    counted = 0
    for row, (words, (tags, scores)) in enumerate(zip(texts, wanted, strict=True)):
        given = got["scores"][row]
        np.testing.assert_allclose(given[: len(words)], scores, atol=1e-5)
        assert (given[len(words) :] == 1).all()
        padded = tags + ["O"] * (width - len(words))
        assert [tag.decode() for tag in got["tags"][row]] == padded
        text = " ".join(words + [""] * (width - len(words)))
        check_entities(got, row, padded, text, words)
        for place, word in enumerate(words):
            assert text[got["starts"][row, place] : got["ends"][row, place]] == word
        counted += len(decode_entities(tags))
    assert counted > 100


def test_texts(loaded, model, tokenizer):
    """Words are slices of the text, and tagged as the same words given one by one."""
    draw = random.Random(4)
    texts = ["", " ", "\u200b", "a", "漢字", "e\u0301e\u0301 é"]
    for _ in range(60):
        parts = draw.choices(
            [*"abcdefgh", *ODD, "'", "-", "(", "a's", "b.c,"], k=draw.randrange(40)
        )
        texts.append("".join(part + draw.choice([" ", "", "\n", "\u00a0"]) for part in parts))
    got = ask(loaded, "serving_default", text=texts)
    found = []
    for row, text in enumerate(texts):
        count = int((got["starts"][row] >= 0).sum())
        words = [word.decode() for word in got["words"][row]]
        tags = [tag.decode() for tag in got["tags"][row]]
        assert all(words[:count]) and not any(words[count:]) and not any(tags[count:])
        edges = zip(got["starts"][row], got["ends"][row], strict=True)
        assert [text[start:end] for start, end in list(edges)[:count]] == words[:count]
        data = text.encode()
        edges = zip(got["start_bytes"][row], got["end_bytes"][row], strict=True)
        assert [data[start:end].decode() for start, end in list(edges)[:count]] == words[:count]
        check_entities(got, row, tags[:count], text, words)
        pieces = tokenizer.tokenize(text).numpy().tolist()
        assert tokenizer.tokenize_words([words[:count]]).ids.values.numpy().tolist() == pieces
        found.append((words[:count], tags[:count]))
    wanted = predicted(model, tokenizer, [words for words, _ in found])
    assert [tags for _, tags in found] == [tags for tags, _ in wanted]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a's (b-c), d.", "a 's ( b-c ) , d ."),
        ("b.c. a’s! 's s's.", "b.c . a ’s ! ' s s 's ."),
        ("漢字ab,漢 c", "漢 字 ab , 漢 c"),
        ("...a...", ". . . a . . ."),
        ("a'b's x'ss", "a'b 's x'ss"),
        ("a\u200bb  c\u00a0d", "a\u200bb c d"),
        ("é한 xyz", "é한 xyz"),
    ],
)
def test_how_texts_are_split(loaded, text, words):
    got = ask(loaded, "serving_default", text=[text])["words"][0]
    assert [word.decode() for word in got] == words.split(" ")


def test_any_batch(loaded):
    texts = ["abc d 漢 fed", "a " * 50, "", "h's 漢字."]
    together = ask(loaded, "serving_default", text=texts)
    for row, text in enumerate(texts):
        for name, value in ask(loaded, "serving_default", text=[text]).items():
            rest = together[name][row, value.shape[1] :]
            found = together[name][row, : value.shape[1]]
            if value.dtype.kind == "f":
                np.testing.assert_allclose(found, value[0], atol=1e-5)
            else:
                assert found.tolist() == value[0].tolist()
            assert set(rest.tolist()) <= {b"", -1}
    assert ask(loaded, "serving_default", text=[])["tags"].shape == (0, 0)
    assert ask(loaded, "words", words=np.zeros((2, 0), object))["tags"].shape == (2, 0)


def test_memory_grows_with_the_text_only(loaded):
    """100 kB used to take 2 GB: every word's slice copied the whole text."""
    text = "abc de " * 15_000
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # the peak is counted from here on
    before = memory("VmRSS")
    got = ask(loaded, "serving_default", text=[text])
    assert memory("VmHWM") - before < 500
    assert b" ".join(got["words"][0]).decode() == text.strip()
    assert got["tags"].shape == (1, 30_000)


def memory(name: str) -> float:
    """Megabytes of this process."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024


@pytest.mark.slow
def test_too_long_texts_are_refused(model, tokenizer, tmp_path):
    lengths = {"max_seq_length": LENGTH, "max_windows": 3}
    path = export_tagger(
        model,
        Export(str(tmp_path), {}),
        functools.partial(ner_inputs.tag_inputs_from_texts, tokenizer, **lengths),
        functools.partial(ner_inputs.tag_inputs_from_words, tokenizer, **lengths),
        TAGS.names,
    )
    limited = tf.saved_model.load(path)
    # A window has ten pieces and begins five behind the one before.
    assert ask(limited, "serving_default", text=["a " * 20, ""])["tags"].shape == (2, 20)
    asked = (("serving_default", {"text": ["", "a " * 21]}), ("words", {"words": [["a"] * 21]}))
    for signature, inputs in asked:
        with pytest.raises(tf.errors.InvalidArgumentError) as refused:
            ask(limited, signature, **inputs)
        for part in ("A text makes", "4", "3 at most", "--export_max_windows"):
            assert part in str(refused.value)
    # Lists are filled up to the longest: memory that the number of texts doesn't explain.
    with pytest.raises(tf.errors.InvalidArgumentError, match="4194304 places at once"):
        ask(limited, "words", words=np.full([2**18 + 1, 16], "", object))


def test_as_many_tags_as_words_in_ten_thousand_sentences(loaded):
    draw = random.Random(9)
    texts = [random_words(draw, 9) for _ in range(10_000)]
    for begin in range(0, len(texts), 500):
        some = texts[begin : begin + 500]
        width = max(map(len, some))
        words = [[*one, *[""] * (width - len(one))] for one in some]
        tags = ask(loaded, "words", words=words)["tags"]
        assert tags.shape == (500, width)
        assert {tag.decode() for tag in set(tags.ravel())} <= {*TAGS.names}
        assert (tags[np.isin(np.array(words), ["", "\u200b", "\x00 "])] == b"O").all()


@pytest.mark.hours
@pytest.mark.slow
def test_in_the_loader_of_tf_serving(model, tokenizer, loaded, load_in_cpp, tmp_path):
    path = export_tagger(
        model,
        Export(str(tmp_path / "export"), {}),
        functools.partial(ner_inputs.tag_inputs_from_texts, tokenizer, max_seq_length=LENGTH),
        functools.partial(ner_inputs.tag_inputs_from_words, tokenizer, max_seq_length=LENGTH),
        TAGS.names,
    )
    texts = np.array(["abc d 漢 fed's.".encode(), b"", b"a \xff b " * 20], object)
    words = np.array([[b"abc", b"", "漢字".encode()], [b"a", b"b", b"..."]], object)
    for signature, name, value in (("serving_default", "text", texts), ("words", "words", words)):
        answers = load_in_cpp(path, signature, **{name: value})
        wanted = ask(loaded, signature, **{name: value})
        assert answers.keys() == wanted.keys()
        for key, array in wanted.items():
            assert answers[key].tolist() == array.tolist(), key


def test_bytes_that_are_not_utf8(loaded):
    broken = [b"\xff\xfe\xff", b"a \xe4\xbd b\xff c \xe6\xbc\xa2", b"\x80a\xcc b \xed\xa0\x80 d"]
    got = ask(loaded, "serving_default", text=broken)
    for row, text in enumerate(broken):
        for word, start, end in zip(
            got["words"][row], got["start_bytes"][row], got["end_bytes"][row], strict=True
        ):
            assert word == (text[start:end] if start >= 0 else b"")
    words = [[b"\xff", b"a\xc3"], [b"", b"b"]]
    assert ask(loaded, "words", words=words)["tags"].shape == (2, 2)
