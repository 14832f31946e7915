"""A vocabulary without what a corpus doesn't need: every text of it keeps its pieces."""

import numpy as np
import pytest

from data.errors import DataError
from data.tokenization import Tokenizer, vocabulary
from data.tokenization.learning import pruning
from tests.reference.plain_tokenizer import plain_pieces, plain_words

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture
def prune(tmp_path):
    """Prunes by sentences, which go through a file."""

    def from_sentences(tokens, sentences, **options):
        path = tmp_path / "corpus.txt"
        path.write_text("\n".join(sentences) + "\n", encoding="utf-8")
        return pruning.prune_from_files(tokens, [str(path)], **options)

    return from_sentences


def ids_of(tokens):
    return {token: index for index, token in enumerate(tokens)}


def test_what_occurs_stays_in_its_order(prune):
    tokens = ["[PAD]", "[unused0]", *SPECIAL[1:], "walking", "walk", "##ing", "talk", "w", "##x"]
    pruned = prune(tokens, ["Walk, talking walk!"])
    left = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "walk", "##ing", "talk", "w", "##x"]
    assert pruned.tokens == left
    assert [tokens[index] for index in pruned.kept_ids] == left
    assert (pruned.words, pruned.same, pruned.unknown_before, pruned.unknown) == (5, 5, 2, 2)
    assert pruned.report() == (
        "10 of 12 pieces stay; all of the corpus's 5 words are cut as before; [UNK]: 40.0000% of "
        "them before, 40.0000% now"
    )


def test_an_unknown_word_stays_unknown(prune):
    """It fails after "abc"; without that, "ab ##cd" would be found."""
    tokens = [*SPECIAL, "abc", "ab", "##cd", "##zz", "x"]
    trap = [token for token in tokens if token != "abc"]
    assert plain_pieces("abcd", ids_of(tokens)) == ["[UNK]"]
    assert plain_pieces("abcd", ids_of(trap)) == ["ab", "##cd"]
    pruned = prune(tokens, ["ab xcd abcd"])
    assert pruned.tokens == [*SPECIAL, "abc", "ab", "##cd", "x"]
    assert (pruned.words, pruned.same, pruned.unknown) == (3, 3, 1)
    # Nor is it enough that the word becomes known to say that it is cut as before.
    compared = pruning._compare(
        tokens, trap, [ids_of(tokens)[token] for token in trap], np.array([1]), np.array([5, 6])
    )
    assert compared == [1, 0, 1, 0]


@pytest.mark.parametrize("seed", range(8))
def test_random_words_under_random_vocabularies(prune, seed):
    rng = np.random.default_rng(seed)

    def word(longest, letters="abcé字,"):
        return "".join(rng.choice([*letters], rng.integers(1, longest + 1)))

    pieces = {word(4, "abcd") for _ in range(40)} | {f"##{word(3, 'abcd')}" for _ in range(40)}
    pieces -= {
        piece for piece in pieces if len(piece.removeprefix("##")) == 1 and rng.random() < 0.7
    }
    tokens = [*SPECIAL, *rng.permutation(sorted(pieces)).tolist()]
    tokens += ["", "字", "a,b", tokens[7], "[USER]", "##字"]
    sentences = [" ".join(word(8, "abcd") for _ in range(6)) for _ in range(12)]
    sentences += [word(9) for _ in range(30)] + ["a" * 200, "a" * 201, "abc" * 300]
    pruned = prune(tokens, sentences)
    before, now = ids_of(tokens), ids_of(pruned.tokens)
    words = [each for sentence in sentences for each in plain_words(sentence, lower=True)]
    cut = [plain_pieces(each, before) for each in words]
    assert [plain_pieces(each, now) for each in words] == cut
    occurring = {piece for of_word in cut for piece in of_word}
    assert len(cut) > 100 and occurring > {"[UNK]"}
    assert occurring <= set(pruned.tokens) <= set(tokens)
    assert pruned.kept_ids == [i for i in sorted(before.values()) if tokens[i] in now]
    assert (pruned.words, pruned.same) == (len(words), len(words))
    assert pruned.unknown == pruned.unknown_before == cut.count(["[UNK]"])
    # The project's own tokenizer agrees, and says so in the new ids.
    old_ids, new_ids = (
        Tokenizer.from_vocab(each).tokenize(sentences) for each in (tokens, pruned.tokens)
    )
    back = np.array(pruned.kept_ids)[new_ids.values.numpy()]
    assert back.tolist() == old_ids.values.numpy().tolist()
    assert new_ids.row_splits.numpy().tolist() == old_ids.row_splits.numpy().tolist()


def test_rare_pieces_may_go(prune):
    tokens = [*SPECIAL, *"abc", "##a", "##b", "##c", "abc", "ab", "##bc", "aca"]
    sentences = ["abc abc ab", "abbc abc aca"]
    pruned = prune(tokens, sentences, min_frequency=2)
    assert pruned.tokens == [*tokens[:11], "abc", "ab"]
    words = " ".join(sentences).split()
    same = [
        plain_pieces(w, ids_of(tokens)) == plain_pieces(w, ids_of(pruned.tokens)) for w in words
    ]
    assert (pruned.words, pruned.same) == (6, 4) == (len(words), sum(same))
    assert "; 66.6667% of the corpus's 6 words are cut as before" in pruned.report()
    pruned = prune(tokens, sentences, min_frequency=2, reserved_tokens=["aca"])
    assert pruned.tokens == [*tokens[:11], "abc", "ab", "aca"]


def test_what_stays_whatever_the_corpus():
    """Of what stands there twice the last, blanks and what no text yields not at all."""
    tokens = ["[CLS]", "[USER]", *SPECIAL, "[unused1]", "[USER]", "a", "##a", "ab"]
    tokens += [",", "##,", "a,b", "ab", "##", ""]
    kept = pruning.kept_pieces(tokens, np.zeros(len(tokens), np.int64))
    assert kept == [2, 3, 4, 5, 6, 8, 9, 10, 12]
    assert [tokens[index] for index in kept] == [*SPECIAL, "[USER]", "a", "##a", ","]
    kept = pruning.kept_pieces(tokens, np.ones(len(tokens), np.int64), ["[unused1]"])
    assert kept == [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15]


def test_mistakes(prune):
    with pytest.raises(DataError, match=r"lacks these of reserved_tokens: horse\. Name"):
        prune([*SPECIAL, "a"], ["a"], reserved_tokens=["a", "horse"])
    with pytest.raises(DataError, match=r"no words in .*corpus\.txt"):
        prune([*SPECIAL, "a"], ["\u200b"])


@pytest.mark.slow
def test_real_text_under_released_vocabularies(prune, shared_data):
    """Of the multilingual vocabulary little stays; the sentences are in five languages."""
    rows = [
        line.split("\t")[0]
        for language in ("en", "de", "zh", "ar", "th")
        for line in (shared_data / f"xnli/dev-{language}.tsv").read_text("utf-8").split("\n")[:200]
    ]
    rows = [row for row in rows if row.strip()]
    path = shared_data / "vocab/bert-multilingual-cased/vocab.txt"
    tokens = vocabulary.load_vocab(str(path))
    pruned = prune(tokens, rows, do_lower_case=False)
    assert pruned.same == pruned.words > 10_000 and len(pruned.tokens) < len(tokens) / 4
    before, now = (
        Tokenizer.from_vocab(each, do_lower_case=False) for each in (tokens, pruned.tokens)
    )
    assert now.ids_to_tokens(now.tokenize(rows)) == before.ids_to_tokens(before.tokenize(rows))
