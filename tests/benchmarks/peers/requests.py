"""The requests that `tests.benchmarks.serving_speed` times, from GLUE's dev sets."""

import dataclasses
import os
import random
from collections.abc import Sequence

from data.tasks.sentences import glue
from data.tasks.sentences.examples import Example
from data.tokenization import Tokenizer, build_inputs
from tests.benchmarks.peers import worker

MAX_SEQ_LENGTH = 128
LENGTHS = (16, 32, 128)
CASES = [*(f"one_{length}" for length in LENGTHS), "sst2", "sst2_rte"]
TEXTS_OF_A_LENGTH = 8
BATCH_SIZE = 32


@dataclasses.dataclass(frozen=True)
class Case:
    """Requests that are timed together.

    Attributes:
        name: Of its files.
        title: In the table.
        batches: Texts of each request.
    """

    name: str
    title: str
    batches: list[list[str]]

    @property
    def size(self) -> int:
        """Texts per request."""
        return len(self.batches[0])


def texts_of_length(
    words: Sequence[str], pieces: Sequence[int], length: int, number: int
) -> list[str]:
    """Running text cut into texts that have exactly so many tokens with [CLS] and [SEP].

    Args:
        words: Of the text.
        pieces: How many pieces each word has.
        length: Tokens of each text.
        number: How many texts.

    Raises:
        ValueError: There are too few words.
    """
    texts, current, room = [], [], length - 2
    for word, count in zip(words, pieces, strict=True):
        if len(texts) == number:
            break
        if count > room:
            continue  # a shorter one fills the rest
        current.append(word)
        room -= count
        if room == 0:
            texts.append(" ".join(current))
            current, room = [], length - 2
    if len(texts) < number:
        raise ValueError(f"{len(words)} words make only {len(texts)} texts of {length} tokens.")
    return texts


def mixed_batches(texts: Sequence[str], size: int, number: int, seed: int) -> list[list[str]]:
    """Batches drawn from texts of all lengths, no text twice."""
    drawn = random.Random(seed).sample(list(texts), size * number)
    return [drawn[start : start + size] for start in range(0, len(drawn), size)]


def dev_set(data_dir: str, task: str) -> list[Example]:
    """Of a task of GLUE, in its published folder."""
    return list(glue.get_task(task).read(os.path.join(data_dir, task), "dev"))


def labelled_case(data_dir: str) -> tuple[Case, list[str]]:
    """All of SST-2's dev set, and the right answers."""
    examples = dev_set(data_dir, "SST-2")
    texts = [example.text_a for example in examples]
    batches = [texts[start : start + BATCH_SIZE] for start in range(0, len(texts), BATCH_SIZE)]
    return Case("dev", "SST-2, dev", batches), [example.label for example in examples]


def make_cases(tokenizer: Tokenizer, data_dir: str, batches: int) -> list[Case]:
    """Single requests of fixed lengths, and batches of real sentences."""

    def texts_of(task: str) -> list[str]:
        return [example.text_a for example in dev_set(data_dir, task)]

    sentences = texts_of("SST-2")
    words = " ".join(sentences).split()
    pieces = tokenizer.tokenize(words).row_lengths().numpy().tolist()
    cases = []
    for length in LENGTHS:
        texts = texts_of_length(words, pieces, length, TEXTS_OF_A_LENGTH)
        cases.append(Case(f"one_{length}", f"1 × {length} tokens", [[text] for text in texts]))
    mixed = mixed_batches(sentences, BATCH_SIZE, batches, seed=1)
    cases.append(Case("sst2", f"{BATCH_SIZE} × SST-2", mixed))
    half = BATCH_SIZE // 2
    short = mixed_batches(sentences, half, batches, seed=2)
    long = mixed_batches(texts_of("RTE"), half, batches, seed=3)
    both = [a + b for a, b in zip(short, long, strict=True)]
    cases.append(Case("sst2_rte", f"{half} × SST-2 + {half} × RTE", both))
    return cases


def write_case(case: Case, tokenizer: Tokenizer, folder: str) -> str:
    """Writes texts and ids for the workers; returns what the case is made of."""
    batches = []
    for texts in case.batches:
        inputs = build_inputs(tokenizer, texts, max_seq_length=MAX_SEQ_LENGTH, pad_to="longest")
        batches.append({name: tensor.numpy() for name, tensor in inputs.items()})
    worker.write_texts(folder, case.name, case.batches)
    worker.write_batches(folder, case.name, batches)
    real = sum(int(batch["input_mask"].sum()) for batch in batches)
    padded = sum(batch["input_mask"].size for batch in batches)
    texts = len(batches) * case.size
    return (
        f"{case.title}: {len(batches)} requests, on average {real / texts:.1f} tokens a text, "
        f"{padded / texts:.1f} with padding to the longest of its request"
    )
