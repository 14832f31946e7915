"""The demo of run_pretraining.py: its corpus, its sizes, and what it shows in the end."""

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from data.pretraining import corpus, from_text
from data.pretraining.corpus import docstrings
from data.tokenization import Tokenizer

# A corpus, a vocabulary and a model that two cores get through in a few minutes.
CORPUS_BYTES = 5_000_000
VOCAB_SIZE = 6000
# Two minutes of training are too few for dropout to help, and a model 128 wide learns sooner
# from larger initial weights than one 768 wide.
CONFIG = {
    "max_position_embeddings": 128,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.05,
}
# Values of the script's flags.
SETTINGS = {
    "output_dir": "output/demo",
    "do_train": True,
    "do_eval": True,
    "max_seq_length": 64,
    "max_predictions_per_seq": 10,
    "dupe_factor": 2,
    "train_batch_size": 32,
    "eval_batch_size": 64,
    # As --recipe=fast, but a model 128 wide takes a higher rate.
    "optimizer": "muon",
    "learning_rate": 4e-3,
    "lr_schedule": "linear_from_peak",
    "num_train_steps": 2000,
    "num_warmup_steps": 200,
    "max_eval_steps": 0,
    "eval_steps": 500,
    "save_checkpoints_steps": 1000,
    "dtype": "auto",
}
_SENTENCES = 5

FillMasks = Callable[[Mapping[str, np.ndarray]], tuple[np.ndarray, np.ndarray]]


def set_demo_flags(flag_values) -> None:
    """Gives the demo's values to the flags that the command line leaves alone.

    Args:
        flag_values: The flags; `flag_values[name].present` and `.value`.
    """
    for name, value in SETTINGS.items():
        if not flag_values[name].present:
            flag_values[name].value = value


@functools.cache
def demo_documents() -> list[corpus.Document]:
    """The embedded corpus: docstrings of the installed packages."""
    logging.info("Reading the docstrings of the installed packages")
    return docstrings.docstring_documents(CORPUS_BYTES)


def demo_text() -> from_text.PretrainingText:
    """That corpus, named."""
    digest = hashlib.sha256()
    for document in demo_documents():
        digest.update(corpus.corpus_document_hash(document).to_bytes(8, "big"))
    name = f"docstrings around TensorFlow {tf.__version__} {digest.hexdigest()}"
    return from_text.PretrainingText(documents=demo_documents, name=name)


def show_demo(
    fill_masks: FillMasks,
    tokenizer: Tokenizer,
    eval_data,
    accuracy: float,
    max_seq_length: int,
    seed: int,
) -> None:
    """Prints the baseline and a few held-out sentences with the model's guesses.

    Args:
        fill_masks: From inputs with one masked word per row to the likeliest ids and their
            probabilities, [rows, 1, k] each.
        tokenizer: Of the run.
        eval_data: The held-out batches.
        accuracy: Of the model on these.
        max_seq_length, seed: Of the run.
    """
    # The token that is masked most often on the same records: a baseline as strong as can be.
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    for batch in eval_data:
        masked = batch["masked_lm_ids"].numpy()[batch["masked_lm_weights"].numpy() > 0]
        counts += np.bincount(masked, minlength=len(counts))
    baseline = tokenizer.vocab[counts.argmax()], counts.max() / max(1, counts.sum())
    held_out = from_text.PretrainingSides(demo_text()).documents(training=False)
    sentences, inputs = _masked_sentences(held_out, tokenizer, max_seq_length, seed)
    ids, probabilities = fill_masks(inputs)
    print(
        f"\nMasked words guessed right in held-out text: {accuracy:.1%}; always guessing "
        f"{baseline[0]!r}, the most frequent, gets {baseline[1]:.1%}."
    )
    print("Held-out sentences with one word masked, and the three likeliest words:")
    guessed = zip(sentences, ids[:, 0], probabilities[:, 0], strict=True)
    for (sentence, hidden), words, shares in guessed:
        guesses = ", ".join(
            f"{tokenizer.vocab[i]} {p:.0%}" for i, p in zip(words, shares, strict=True)
        )
        print(f"\n  {sentence}\n    masked: {hidden}    guessed: {guesses}")


def _masked_sentences(
    documents: Iterable[corpus.Document], tokenizer: Tokenizer, max_seq_length: int, seed: int
) -> tuple[list[tuple[str, str]], dict[str, np.ndarray]]:
    """Sentences of 8 to 20 words with one word of a single piece hidden, and the model's inputs.

    Returns:
        Sentences with [MASK] and the hidden words; int32 `input_ids`, `input_mask`, `segment_ids`
        [sentences, max_seq_length] and `masked_lm_positions` [sentences, 1].
    """
    rng = np.random.default_rng(seed)
    texts = [s for d in documents for s in d.sentences if 8 <= len(s.split()) <= 20]
    rng.shuffle(texts)
    sentences, rows = [], []
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
        sentences.append((" ".join(shown).replace(" ##", ""), tokens[place]))
        ids[place] = tokenizer.mask_id
        rows.append(([tokenizer.cls_id, *ids, tokenizer.sep_id], place + 1))
        if len(rows) == _SENTENCES:
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
