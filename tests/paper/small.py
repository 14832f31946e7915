"""The paper's experiments at the scale of two CPU cores: which models, how long, on what.

Two kinds of models stand in for the paper's:

* MiniLM (6 layers, 384 wide; Wang et al. 2020), pre-trained by others, and its first layers, where
  the paper compares models by size; or after some more pre-training here, where what that does to
  a good model is the question;
* models of two layers, 128 wide, which are pre-trained here on a part of Wikipedia, 64
  tokens at a time, where the paper compares objectives. Their vocabulary of 8,000 keeps
  the softmax cheap; larger initial weights, no dropout, and Adam with bias correction are what
  such small models learn from in so few steps.
"""

import json
import pathlib
import random
import sys
from collections.abc import Sequence

from tests.paper.experiment import Place, Run

VOCAB_SIZE = 8000
LENGTH = 64
PREDICTIONS = 10
FILES = "wiki_[0-2]*"  # of enwiki: 30 of its 64 files, 31 MB

# Fine-tuning of either kind; heads begin as the paper's.
TUNING = {
    "do_train": True,
    "do_eval": True,
    "optimizer": "adamw",
    "lr_schedule": "linear_from_peak",
    "train_batch_size": 32,
    "eval_batch_size": 32,
    "dtype": "auto",
    "original_head": True,
}
# Of questions; a paragraph of 75 words fits into one.
WINDOWS = {"max_seq_length": 128, "doc_stride": 64, "predict_batch_size": 32}


def steps(place: Place, number: int) -> int:
    """So many, or two where only the machinery is tried."""
    return 2 if place.smoke else number


# ---- Models pre-trained by others ----


def minilm(place: Place, layers: int = 6, weights: bool = True) -> dict[str, object]:
    """Flags for MiniLM's first layers; without `weights` for a random model of that size."""
    path = place.minilm / "config.json"
    if not path.is_file():
        sys.exit(
            f"{path} isn't there. --minilm (or BERT_MINILM_DIR) names the folder with MiniLM's "
            f"model.safetensors, config.json and vocab.txt; README says where they come from."
        )
    config = json.loads(path.read_text(encoding="utf-8"))
    if layers != config["num_hidden_layers"]:
        text = json.dumps(config | {"num_hidden_layers": layers}, indent=1)
        path = place.made(f"minilm-{layers}-layers.json", lambda: text)
    flags = {"bert_config_file": path, "vocab_file": place.minilm / "vocab.txt"}
    return flags | ({"init_checkpoint": place.minilm / "model.safetensors"} if weights else {})


# ---- Models pre-trained here ----


def vocabulary(place: Place) -> Run:
    flags = {
        "input_file": place.data / "corpora/enwiki/train" / FILES,
        "output_file": "{folder}/vocab.txt",
        "vocab_size": VOCAB_SIZE,
    }
    return Run("vocabulary", "data.learn_vocabulary", flags, "vocab.txt")


def records(
    place: Place,
    held_out: bool = False,
    of_minilm: bool = False,
    length: int | None = None,
    predictions: int = PREDICTIONS,
) -> Run:
    """Records of pairs, two passes; or of articles that no model is trained on.

    With MiniLM's vocabulary they are of a third of the text and one pass, enough to go on with.
    A length is part of their name. More predictions than 15 % of it are places that stay empty:
    the masks are the same.
    """
    words = None if of_minilm else vocabulary(place)
    part, files = ("heldout", "wiki_00") if held_out else ("train", FILES)
    if of_minilm and not held_out:
        files = "wiki_0*"
    if place.smoke:
        files = "wiki_00"
    flags = {
        "input_file": place.data / "corpora/enwiki" / part / files,
        "output_file": "{folder}/records.tfrecord",
        "vocab_file": place.of(words, "vocab.txt") if words else place.minilm / "vocab.txt",
        "max_seq_length": length or LENGTH,
        "max_predictions_per_seq": predictions,
        "dupe_factor": 1 if held_out or of_minilm else 2,
        "num_shards": 1 if held_out else 4,
        "num_workers": 2,
    }
    name = ("held-out" if held_out else "records") + ("-minilm" if of_minilm else "")
    name += f"-{length}" * bool(length) + f"-of-{predictions}" * (predictions != PREDICTIONS)
    done = "records.tfrecord.manifest.json"
    return Run(name, "data.create_pretraining_data", flags, done, after=[words] if words else [])


def pretrained(
    place: Place,
    name: str,
    num_steps: int,
    **flags,
) -> Run:
    """A model of two layers, 128 wide, after so many steps of 32 × 64 tokens.

    Args:
        place: Where.
        name: Of what is special about it; size and steps are added.
        num_steps: Updates, of which a tenth warm up.
        flags: More of run_pretraining.py, such as its objective.
    """
    config = {
        "vocab_size": VOCAB_SIZE,
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 512,
        "max_position_embeddings": LENGTH,
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.05,
    }
    size, text = "2x128x2", json.dumps(config, indent=1)
    model = {
        "bert_config_file": place.made(f"bert-{size}.json", lambda: text),
        "vocab_file": place.of(vocabulary(place), "vocab.txt"),
        "learning_rate": 1e-3,
    }
    return _pretraining(place, f"pretrained-{name}-{size}", num_steps, model | flags)


def continued(place: Place, name: str, num_steps: int, layers: int, **flags) -> Run:
    """MiniLM's first layers after so many more steps of pre-training, of 32 × 64 tokens.

    Their head for masked words is new: the published weights have none.
    """
    model = minilm(place, layers) | {"learning_rate": 5e-4}
    name = f"continued-{name}-{layers}-layers"
    return _pretraining(place, name, num_steps, model | flags, of_minilm=True)


def _pretraining(
    place: Place, name: str, num_steps: int, flags: dict[str, object], of_minilm: bool = False
) -> Run:
    made = records(place, of_minilm=of_minilm)
    held_out = records(place, held_out=True, of_minilm=of_minilm)
    number = steps(place, num_steps)
    given = {
        "input_file": place.of(made, "records-*.tfrecord"),
        "eval_file": place.of(held_out, "records-*.tfrecord"),
        "do_train": True,
        "do_eval": True,
        "max_seq_length": LENGTH,
        "max_predictions_per_seq": PREDICTIONS,
        "train_batch_size": 32,
        "eval_batch_size": 64,
        "max_eval_steps": steps(place, 20 if of_minilm else 50),
        "num_train_steps": number,
        "num_warmup_steps": max(1, number // 10),
        "optimizer": "adamw",
        "lr_schedule": "linear_from_peak",
        "save_checkpoints_steps": number,
        "dtype": "auto",
    } | flags
    return Run(f"{name}-{number}", "run_pretraining.py", given, after=[made, held_out])


def own(place: Place, model: Run, checkpoint: str = "bert_model.ckpt") -> dict[str, object]:
    """Flags for fine-tuning a model that was pre-trained here."""
    return {
        "bert_config_file": place.of(model, "bert_config.json"),
        "vocab_file": place.of(model, "vocab.txt"),
        "init_checkpoint": place.of(model, checkpoint),
        "max_seq_length": LENGTH,
    }


# ---- Fine-tuning ----


def glue(
    place: Place,
    name: str,
    task: str,
    model: dict[str, object],
    num_steps: int,
    learning_rate: float,
    after: Sequence[Run] = (),
    seeds: Sequence[int] | None = None,
    **flags,
) -> Run:
    """A GLUE task from a model, with every seed."""
    given = {
        "task_name": task,
        "data_dir": place.data / "glue" / task,
        "max_seq_length": 128,
        **TUNING,
        **model,
        "learning_rate": learning_rate,
        "num_train_steps": steps(place, num_steps),
        **flags,
    }
    seeds = seeds or place.seed_range()
    return Run(f"{task}-{name}", "run_classifier.py", given, seeds=seeds, after=after)


def squad(
    place: Place,
    name: str,
    train_file: pathlib.Path,
    predict_file: pathlib.Path,
    model: dict[str, object],
    num_steps: int,
    after: Sequence[Run] = (),
    **flags,
) -> Run:
    """Questions from MiniLM or a part of it, a process for every seed."""
    not_there = ("do_eval", "eval_batch_size", "original_head")
    tuning = {key: value for key, value in TUNING.items() if key not in not_there}
    given = {
        **tuning,
        **model,
        "do_predict": True,
        "train_file": train_file,
        "predict_file": predict_file,
        **WINDOWS,
        "learning_rate": 1.5e-4,
        "num_train_steps": steps(place, num_steps),
        "save_checkpoints_steps": max(1, steps(place, num_steps)),
        **flags,
    }
    return Run(name, "run_squad.py", given, "eval_results.json", place.seed_range(), after)


def some_questions(
    place: Place,
    name: str,
    source: str,
    questions: int,
    words: int,
    part: int = 0,
    parts: int = 1,
) -> pathlib.Path:
    """A SQuAD file of about so many questions of another: short paragraphs, drawn at random.

    Args:
        place: Where.
        name: Of the file.
        source: Its original, below the data's folder.
        questions: About how many, if there are as many.
        words: Of a paragraph at most. A window of an average one takes two seconds to train on.
        part, parts: Only every `parts`-th article, from number `part` on; so two parts share none.
    """
    questions = 20 if place.smoke else questions

    def text() -> str:
        whole = json.loads((place.data / source).read_text(encoding="utf-8"))
        articles = whole["data"][part::parts]
        paragraphs = [
            (article["title"], paragraph)
            for article in articles
            for paragraph in article["paragraphs"]
            if len(paragraph["context"].split()) <= words
        ]
        random.Random(0).shuffle(paragraphs)
        chosen, count = [], 0
        for title, paragraph in paragraphs:
            if count >= questions:
                break
            chosen.append({"title": title, "paragraphs": [paragraph]})
            count += len(paragraph["qas"])
        return json.dumps({"version": whole.get("version", ""), "data": chosen})

    return place.made(f"{name}-{questions}-of-{words}-words.json", text)


def some_sentences(place: Place, name: str, source: str, sentences: int) -> pathlib.Path:
    """The first documents of a CoNLL file, with so many sentences or a few more."""
    sentences = 20 if place.smoke else sentences

    def text() -> str:
        blocks = (place.data / source).read_text(encoding="utf-8").split("\n\n")
        chosen, count = [], 0
        for block in blocks:
            begins = block.startswith("-DOCSTART-")
            if begins and count >= sentences:
                break
            chosen.append(block)
            count += not begins
        return "\n\n".join(chosen) + "\n"

    return place.made(f"{name}-{sentences}.txt", text)


def tags(
    place: Place,
    name: str,
    model: dict[str, object],
    sentences: tuple[int, int],
    after: Sequence[Run] = (),
    seeds: Sequence[int] | None = None,
    **flags,
) -> Run:
    """CoNLL-2003's entities, trained and evaluated on the first so many sentences.

    The words are lower-cased, as the models are; the paper kept their case.
    """
    given = {
        "train_file": some_sentences(place, "eng.train", "conll2003/eng.train", sentences[0]),
        "dev_file": some_sentences(place, "eng.testa", "conll2003/eng.testa", sentences[1]),
        "max_seq_length": 128,
        **TUNING,
        **model,
        **flags,
    }
    if place.smoke:
        given["num_train_steps"] = 2
    seeds = seeds or place.seed_range()
    return Run(name, "run_ner.py", given, seeds=seeds, after=after)
