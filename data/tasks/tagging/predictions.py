"""Predicted tags as files: the CoNLL tasks' columns, and entities as JSON lines."""

import itertools
import json
import re
from collections.abc import Sequence

from data.files import atomic
from data.tasks.tagging.conll import DOCUMENT, ConllSentence
from data.tasks.tagging.schemes import decode_entities


def write_tag_columns(
    path: str, sentences: Sequence[ConllSentence], predicted: Sequence[Sequence[str]]
) -> None:
    """A line per word, a blank line behind each sentence: word, gold tag if known, predicted tag.

    One blank separates the columns, as conlleval expects. A word that is empty, or has blanks,
    tabs or ends of lines inside, is written with "_" for each of these (for nothing, one), so
    that there is one line for every word. Lines with -DOCSTART- aren't written.

    Raises:
        DataError: The file can't be written.
    """
    lines: list[str] = []
    for sentence, tags in zip(sentences, predicted, strict=True):
        columns = [[_one_word(word) for word in sentence.words], sentence.tags, tags]
        columns = [column for column in columns if column is not None]
        lines += [" ".join(row) for row in zip(*columns, strict=True)] + [""]
    atomic.write_text(path, "\n".join(lines) + "\n" * bool(lines))


def write_entities(
    path: str,
    sentences: Sequence[ConllSentence],
    predicted: Sequence[Sequence[str]],
    scores: Sequence[Sequence[float]],
    separator: str = " ",
) -> None:
    """An object per sentence: its text, the entities with their places in it, and scores.

    The text is the words with `separator` between them. An entity has "type", "text", "start" and
    "end" in characters of the text, from and to before, "start_word" and "end_word" in words, and
    as "score" that of its least sure word. "scores" are the probabilities of all words' tags.
    "source" is the file and line of the sentence.

    Raises:
        DataError: The file can't be written.
    """
    lines = []
    for sentence, tags, of_words in zip(sentences, predicted, scores, strict=True):
        of_words = [round(float(score), 6) for score in of_words]
        text = separator.join(sentence.words)
        sizes = (len(word) + len(separator) for word in sentence.words)
        starts = list(itertools.accumulate(sizes, initial=0))
        entities = []
        for entity in decode_entities(tags):
            start = starts[entity.start]
            end = starts[entity.end] - len(separator)
            entities.append(
                {
                    "type": entity.type,
                    "text": text[start:end],
                    "start": start,
                    "end": end,
                    "start_word": entity.start,
                    "end_word": entity.end,
                    "score": min(of_words[entity.start : entity.end]),
                }
            )
        row = {"source": sentence.source, "text": text, "entities": entities, "scores": of_words}
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    atomic.write_text(path, "".join(lines))


def _one_word(word: str) -> str:
    word = re.sub(r"\s", "_", word) or "_"
    # A word of its own it would be read as the beginning of a document.
    return f"_{word}" if word.startswith(DOCUMENT) else word
