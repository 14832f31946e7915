"""Words put into the [unusedN] places of a vocabulary."""

import itertools

import pytest

from data.errors import DataError
from data.tokenization import Tokenizer, vocabulary
from data.tokenization.learning import extension, learner
from tests.reference.plain_tokenizer import plain_pieces

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefgh"
PIECES = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]


def vocab(slots: int, *more: str) -> list[str]:
    unused = [f"[unused{index}]" for index in range(slots)]
    return [SPECIAL[0], *unused, *SPECIAL[1:], *PIECES, *more]


def pieces(tokens, counts) -> int:
    """Pieces of all words; an [UNK] weighs as its characters, two at least."""
    known = {token: index for index, token in enumerate(tokens)}
    total = 0
    for word, count in counts.items():
        cut = plain_pieces(word, known)
        total += count * (max(2, len(word)) if cut == ["[UNK]"] else len(cut))
    return total


def test_each_choice_saves_the_most():
    """Against trying every word; "abcd" also changes how "abcdef" is cut."""
    counts = {"abcd": 5, "abcdef": 9, "ab": 30, "efgh": 4, "abce": 3, "zz": 6, "ghgh": 1, "a": 99}
    tokens = vocab(4, "abc", "##def")
    got = extension.extend_vocabulary(tokens, counts)
    chosen: list[str] = []
    for _ in range(4):
        saved = {
            word: pieces([*tokens, *chosen], counts) - pieces([*tokens, *chosen, word], counts)
            for word, count in counts.items()
            if count >= 2 and word not in tokens
        }
        best = max(sorted(saved), key=saved.get)
        assert saved[best] > 0
        chosen.append(best)
    assert list(got.replaced.values()) == chosen
    assert got.replaced.keys() == {1, 2, 3, 4} and got.free == 0
    assert "ghgh" not in chosen  # too rare


def test_nothing_is_taken_that_saves_nothing():
    got = extension.extend_vocabulary(vocab(3, "ab"), {"ab": 50, "a": 20})
    assert got.replaced == {} and got.free == 3
    # "abc" would save 9 pieces of its own, and cut "abcdef" into "abc ##d ##e ##f".
    tokens = vocab(1, "ab", "##cdef")
    counts = {"abc": 9, "abcdef": 20}
    assert pieces([*tokens, "abc"], counts) > pieces(tokens, counts)
    assert extension.extend_vocabulary(tokens, counts).replaced == {1: "abcdef"}


def test_unknown_words_are_worth_more_than_cut_ones():
    known = {"zz": 10, "ab": 10}  # saves 10 either way: two pieces each
    assert extension.extend_vocabulary(vocab(1), known).replaced == {1: "ab"}
    counts = {"zbc": 10, "abc": 10}
    chosen = extension.extend_vocabulary(vocab(1, "##bc"), counts).replaced
    assert chosen == {1: "zbc"}
    assert extension.extend_vocabulary(vocab(1), {"漢": 10, "ab": 9}).replaced == {1: "漢"}


def test_reserved_tokens_come_first_and_places_stay_free():
    got = extension.extend_vocabulary(
        vocab(5), {"abc": 9}, reserved_tokens=["[USER]", "hab", "a", "hab"], num_unused=2
    )
    assert got.replaced == {1: "[USER]", 2: "hab", 3: "abc"}
    assert got.free == 2


@pytest.mark.parametrize(
    ("tokens", "options", "message"),
    [
        (vocab(0), {}, "no place for a new word"),
        (vocab(2), {"num_unused": 2}, "2 are to stay free"),
        (vocab(1), {"reserved_tokens": ["xx", "yy"]}, "2 reserved tokens .* only 1"),
        (vocab(1), {"reserved_tokens": ["New York"]}, "New York.*tokenization sees new york"),
        (vocab(1), {"reserved_tokens": ["a-b"]}, "'a-b' .*sees a - b"),
        (vocab(1), {"reserved_tokens": ["x" * 201]}, "201 characters"),
        (vocab(1, *"ABCDEFGH"), {}, "--do_lower_case=False"),
        (vocab(1), {"do_lower_case": False}, "--do_lower_case=True"),
    ],
)
def test_refusals(tokens, options, message):
    with pytest.raises(DataError, match=message):
        extension.extend_vocabulary(tokens, {"abc": 9}, **options)


def test_learning_refuses_reserved_tokens_that_never_occur(tmp_path):
    (tmp_path / "a.txt").write_text("one two\n")
    with pytest.raises(DataError, match=r"Hello.*tokenization sees hello"):
        learner.learn_from_files([str(tmp_path / "a.txt")], 50, reserved_tokens=["Hello"])


def test_only_the_lines_of_the_words_change(tmp_path):
    source, output = tmp_path / "old.txt", tmp_path / "new.txt"
    lines = ["\ufeff[PAD]", "[unused0]\r", *SPECIAL[1:], "\u2028", "##\u2028", " a ", "", "", "b"]
    source.write_bytes("\n".join(lines).encode())
    vocabulary.write_replaced_vocabulary(str(source), {1: "漢字x"}, str(output))
    lines[1] = "漢字x\r"
    assert output.read_bytes() == "\n".join(lines).encode()
    assert [path.name for path in tmp_path.iterdir()].count("new.txt") == 1


@pytest.mark.parametrize("name", ["uncased-en", "cased-en", "chinese", "multilingual-cased"])
def test_released_vocabularies(shared_data, tmp_path, name):
    source = shared_data / f"vocab/bert-{name}/vocab.txt"
    lower = name in ("uncased-en", "chinese")
    words = ["xylokarp" if lower else "Xylokarp", "qwertzen"]
    extended = extension.extend_from_files(
        str(source), [], do_lower_case=lower, reserved_tokens=words
    )
    output = tmp_path / "vocab.txt"
    vocabulary.write_replaced_vocabulary(str(source), extended.replaced, str(output))
    before, after = source.read_bytes().split(b"\n"), output.read_bytes().split(b"\n")
    changed = [pair for pair in itertools.zip_longest(before, after) if pair[0] != pair[1]]
    assert [new.decode() for _, new in changed] == words
    assert all(old.startswith(b"[unused") for old, _ in changed)
    tokenizer = Tokenizer(str(output), lower)
    assert tokenizer.ids_to_tokens(tokenizer.tokenize(" ".join(words))) == words


def test_from_files(tmp_path):
    source = tmp_path / "vocab.txt"
    vocabulary.write_vocab(vocab(2), str(source))
    texts = [f"abc habe {letter}" for letter in LETTERS * 40]
    (tmp_path / "a.txt").write_text("\n\n".join(texts) + "\n")
    got = extension.extend_from_files(str(source), [str(tmp_path / "a.txt")], heldout_share=0.1)
    assert set(got.replaced.values()) == {"abc", "habe"}
    assert got.before.pieces_per_word > 2.5 and got.after.pieces_per_word == 1
    assert "2 [unusedN] places filled, 0 free" in got.report()
    with pytest.raises(DataError, match="Nothing was given"):
        extension.extend_from_files(str(source), [])
    with pytest.raises(DataError, match="Leave --vocab_size out"):
        extension.extend_from_files(str(source), [], vocab_size=5, reserved_tokens=["x"])
