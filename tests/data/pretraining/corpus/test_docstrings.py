"""The default corpus: prose, deterministic, without copies."""

import pytest

from data.pretraining.corpus import split_corpus_documents
from data.pretraining.corpus.docstrings import docstring_documents, docstring_sentences

DOCSTRING = """Computes the thing.

    The `thing` is **well known**; see [the docs](https://example.org/a_(b)) for
    more of it.  It has :class:`parts` too.

    Parameters
    ----------
    x : int
        The first of all numbers here.

    ===  ======
    a    table
    ===  ======

    For example::

        code = that(shouldn, t, be, here)

    >>> thing(1)
    a result of this example

    ```python
    more = code()
    ```

    Args:
      alpha: A number that is larger than zero. It is used twice.

    .. deprecated:: 1.2
       Not to be used any longer, please.
    """


def test_cleaning():
    sentences = docstring_sentences(DOCSTRING)
    assert sentences == [
        "The thing is well known; see the docs for more of it.",
        "It has parts too.",
        "The first of all numbers here.",
        "alpha: A number that is larger than zero.",
        "It is used twice.",
    ]


@pytest.fixture(scope="module")
def documents():
    return docstring_documents(max_bytes=400_000)


def test_limited_deterministic_and_seeded(documents):
    size = sum(len(s) + 1 for d in documents for s in d.sentences)
    assert 390_000 < size < 450_000
    assert docstring_documents(max_bytes=400_000) == documents
    other = docstring_documents(max_bytes=400_000, seed=1)
    assert {d.source for d in other} != {d.source for d in documents}


def test_prose_without_copies(documents):
    assert all(len(d.sentences) >= 2 for d in documents)
    texts = ["\n".join(d.sentences) for d in documents]
    assert len(set(texts)) == len(texts)
    sentences = [s for d in documents for s in d.sentences]
    assert len(set(sentences)) > 0.9 * len(sentences)
    assert not any(">>>" in s or "```" in s or "\n" in s or "----" in s for s in sentences)
    train, held_out = split_corpus_documents(documents, 0.1)
    assert 0.05 < len(held_out) / len(documents) < 0.16 and len(train) > len(held_out)
