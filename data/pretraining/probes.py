"""Small questions to a masked LM about its held-out text."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from data.pretraining.corpus import Document
from data.tokenization import Tokenizer


class MaskedSentence(NamedTuple):
    """A sentence with one word hidden.

    Attributes:
        text: The sentence with [MASK] in the word's place.
        word: The hidden word, one piece of the vocabulary.
    """

    text: str
    word: str


class MostFrequentToken(NamedTuple):
    """Accuracy of always predicting the token that is masked most often."""

    token_id: int
    accuracy: float


def most_frequent_token(batches: Iterable[Mapping[str, tf.Tensor]], vocab_size: int):
    """The baseline that a masked LM has to beat, from the records that it is evaluated on.

    Choosing the token on the same records makes the baseline as strong as it can be.
    """
    counts = np.zeros(vocab_size, np.int64)
    for batch in batches:
        ids = batch["masked_lm_ids"].numpy()[batch["masked_lm_weights"].numpy() > 0]
        counts += np.bincount(ids, minlength=vocab_size)
    token = int(counts.argmax())
    return MostFrequentToken(token, float(counts[token] / max(1, counts.sum())))


def masked_sentences(
    documents: Iterable[Document], tokenizer: Tokenizer, count: int, max_seq_length: int, seed: int
) -> tuple[list[MaskedSentence], dict[str, np.ndarray]]:
    """Sentences of 8 to 20 words with one whole word hidden, and the model's inputs for them.

    Returns:
        (sentences, inputs): inputs are int32 `input_ids`, `input_mask`, `segment_ids`
        [count, max_seq_length] and `masked_lm_positions` [count, 1].
    """
    rng = np.random.default_rng(seed)
    texts = [s for d in documents for s in d.sentences if 8 <= len(s.split()) <= 20]
    rng.shuffle(texts)
    sentences: list[MaskedSentence] = []
    rows = []
    for text in texts:
        ids = tokenizer.tokenize(text).numpy()[: max_seq_length - 2]
        tokens = tokenizer.ids_to_tokens(ids)
        # Words of one piece, and of more than three letters: the others say little.
        whole = [
            i
            for i, token in enumerate(tokens)
            if token.isalpha()
            and len(token) > 3
            and not (i + 1 < len(tokens) and tokenizer.is_continuation[ids[i + 1]])
        ]
        if not whole:
            continue
        place = int(rng.choice(whole))
        shown = [*tokens[:place], "[MASK]", *tokens[place + 1 :]]
        sentences.append(MaskedSentence(" ".join(shown).replace(" ##", ""), tokens[place]))
        ids[place] = tokenizer.mask_id
        rows.append(([tokenizer.cls_id, *ids, tokenizer.sep_id], place + 1))
        if len(rows) == count:
            break
    input_ids = np.full((len(rows), max_seq_length), tokenizer.pad_id, np.int32)
    for row, (ids, _) in zip(input_ids, rows, strict=True):
        row[: len(ids)] = ids
    lengths = np.array([len(ids) for ids, _ in rows])
    inputs = {
        "input_ids": input_ids,
        "input_mask": (np.arange(max_seq_length) < lengths[:, None]).astype(np.int32),
        "segment_ids": np.zeros_like(input_ids),
        "masked_lm_positions": np.array([[place] for _, place in rows], np.int32),
    }
    return sentences, inputs
