"""The demo of run_pretraining.py: its corpus, its sizes, and what it shows in the end."""

import functools
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf
from absl import logging

from data.pretraining import corpus, from_text, probes
from data.pretraining.corpus import docstrings
from data.tokenization import Tokenizer

# A corpus, a vocabulary and a model that two cores get through in under four minutes.
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
    "learning_rate": 7e-4,
    "num_train_steps": 3000,
    "num_warmup_steps": 300,
    "max_eval_steps": 0,
    "eval_steps": 500,
    "save_checkpoints_steps": 1000,
    "dtype": "auto",
}
_SENTENCES = 5

FillMasks = Callable[[Mapping[str, np.ndarray]], tuple[np.ndarray, np.ndarray]]


def set_flags(flag_values) -> None:
    """Gives the demo's values to the flags that the command line leaves alone.

    Args:
        flag_values: The flags; `flag_values[name].present` and `.value`.
    """
    for name, value in SETTINGS.items():
        if not flag_values[name].present:
            flag_values[name].value = value


@functools.cache
def documents() -> list[corpus.Document]:
    """The embedded corpus: docstrings of the installed packages."""
    logging.info("Reading the docstrings of the installed packages")
    return docstrings.docstring_documents(CORPUS_BYTES)


def text() -> from_text.Text:
    """That corpus, named."""
    name = f"docstrings around TensorFlow {tf.__version__}, {len(documents())} documents"
    return from_text.Text(documents=documents, name=name)


def show(
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
    baseline = probes.most_frequent_token(eval_data, tokenizer.vocab_size)
    held_out = list(from_text.Sides(text()).documents(training=False))
    sentences, inputs = probes.masked_sentences(
        held_out, tokenizer, _SENTENCES, max_seq_length, seed
    )
    ids, probabilities = fill_masks(inputs)
    print(
        f"\nMasked words guessed right in held-out text: {accuracy:.1%}; always guessing "
        f"{tokenizer.vocab[baseline.token_id]!r}, the most frequent, gets {baseline.accuracy:.1%}."
    )
    print("Held-out sentences with one word masked, and the three likeliest words:")
    for sentence, words, shares in zip(sentences, ids[:, 0], probabilities[:, 0], strict=True):
        guesses = ", ".join(
            f"{tokenizer.vocab[i]} {p:.0%}" for i, p in zip(words, shares, strict=True)
        )
        print(f"\n  {sentence.text}\n    masked: {sentence.word}    guessed: {guesses}")
