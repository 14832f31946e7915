"""Tiny models and files for the fine-tuning scripts, whose runs then take seconds."""

import json
import pathlib

import numpy as np

WORDS = ("good", "bad", "film", "the", "a", "was", "very", "plot", "and")
NAMES = ("bonn", "rome", "oslo", "ann", "bob", "eve")
QUESTION = ("who", "is", "it")


def write_model(folder: pathlib.Path) -> None:
    """vocab.txt and config.json, without dropout."""
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *NAMES, *QUESTION]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    config = {"vocab_size": len(vocab), "hidden_size": 16, "num_hidden_layers": 1}
    config |= {"num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 32}
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))


def sentences(count: int, seed: int, labels=("good", "bad")) -> list[dict[str, str]]:
    """Rows of text and verdict; the verdict is a matter of one word. Each label occurs."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        words = list(draw.choice(WORDS[2:], draw.integers(2, 7)))
        words.insert(draw.integers(0, len(words)), WORDS[number % 2])
        rows.append({"text": " ".join(words), "verdict": labels[number % len(labels)]})
    return rows


def write_rows(path: pathlib.Path, rows: list[dict[str, str]]) -> None:
    """A .tsv file with a header."""
    lines = ["\t".join(rows[0]), *("\t".join(row.values()) for row in rows)]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def write_tags(path: pathlib.Path, count: int, seed: int, types=("LOC", "PER")) -> None:
    """Sentences, a word per line: the word, a tag by the other type, the tag."""
    draw = np.random.default_rng(seed)
    text = ""
    for _ in range(count):
        for _ in range(draw.integers(2, 7)):
            kind = int(draw.integers(0, 2))
            name, other = draw.choice(NAMES[3 * kind :][:3]), draw.choice(WORDS)
            text += f"{name} B-{types[1 - kind]} B-{types[kind]}\n{other} O O\n"
        text += "\n"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def write_questions(path: pathlib.Path, count: int, seed: int, answers: bool = True) -> None:
    """Questions in the form of SQuAD 1.1 whose answer is the name in the context."""
    draw = np.random.default_rng(seed)
    paragraphs = []
    for number in range(count):
        words = list(draw.choice(WORDS, draw.integers(3, 12)))
        place, name = int(draw.integers(0, len(words))), str(draw.choice(NAMES))
        start = len(" ".join([*words[:place], ""]))
        words.insert(place, name)
        question = {"id": f"q{number}", "question": " ".join(QUESTION)}
        if answers:
            question["answers"] = [{"text": name, "answer_start": start}]
        paragraphs.append({"context": " ".join(words), "qas": [question]})
    data = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
    path.write_text(json.dumps(data))


def command(script: str, folder: pathlib.Path, out: str, *more) -> tuple:
    """The command line of a script that works with the folder's model and files."""
    return (
        script,
        f"--vocab_file={folder}/vocab.txt",
        f"--bert_config_file={folder}/config.json",
        f"--output_dir={folder}/{out}",
        *("--max_seq_length=16", "--train_batch_size=8", "--warmup_proportion=0", *more),
    )


def classifier(folder: pathlib.Path, out: str, *more) -> tuple:
    """run_classifier.py on own files in the folder."""
    own = ("--task_name=delimited", f"--data_dir={folder}")
    return command("run_classifier.py", folder, out, *own, *more)


def tagger(folder: pathlib.Path, out: str, *more) -> tuple:
    """run_ner.py on files in the folder."""
    return command("run_ner.py", folder, out, f"--data_dir={folder}", *more)


def answerer(folder: pathlib.Path, out: str, *more) -> tuple:
    """run_squad.py."""
    sizes = ("--max_seq_length=32", "--doc_stride=8", "--max_query_length=8")
    return command("run_squad.py", folder, out, *sizes, *more)


def results(path: pathlib.Path) -> dict[str, float]:
    """What eval_results.txt says."""
    lines = (line.split(" = ") for line in path.read_text().splitlines())
    return {key: float(value) for key, value in lines}
