"""Three domains: what `--adapt` gains and loses there, and whether a task of each is better for it.

    python -m tests.paper.adaptations --shared=DATA --minilm=DIR --work=/tmp/adaptations

MiniLM, which has no head for masked words, is first adapted to Wikipedia for 15 minutes and so gets
one; from there on each domain has --minutes: docstrings of the installed libraries, sentences of
film reviews (SST-2's), and newswire (CoNLL-2003's), with other articles as general text. With few
labels a task of each domain is then fine-tuned from MiniLM as it is, from MiniLM with Wikipedia,
and from what was adapted. What is there isn't run again, and what was interrupted goes on. Minutes
are measured: run it on a machine that does nothing else. `--only=reviews,newswire` takes some.

The tables go to adaptations.txt in --work.
"""

from modeling import quiet  # noqa: F401  isort: skip

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Iterable

from tabulate import tabulate

from data.demo import libraries, modules
from data.pretraining.corpus import docstrings
from tests.paper import small
from tests.paper.experiment import ROOT, Cell, FailedRunError, Place, Run, complete, numbers
from tests.paper.recipes import shown

HEAD_MINUTES = 15.0
EXAMPLES = 1000
"""Of docstrings, labelled: as many to train on as to score."""
REVIEWS = 2000
SENTENCES = (1000, 1500)
LEARNING_RATE = 1e-4
STEPS = {"docstrings": 94, "reviews": 188, "newswire": 94}
"""Of 32: three epochs."""


DOMAINS = tuple(STEPS)

# ---- Texts ----


def as_text(documents: Iterable[Iterable[str]]) -> str:
    """The original's format: a sentence on a line, a blank line behind each document."""
    return "".join("\n".join(sentences) + "\n\n" for sentences in documents)


def docstring_text(place: Place) -> str:
    """Docstrings of the modules that the task is trained on, each sentence once."""
    seen: set[str] = set()
    documents = []
    for module in modules.installed_modules():
        if module.part != "train" or (place.smoke and len(documents) > 100):
            continue
        for _, docstring in docstrings.documented_nodes(module.path):
            fresh = [s for s in docstrings.docstring_sentences(docstring) if s not in seen]
            seen.update(fresh)
            if len(fresh) > 1:
                documents.append(fresh)
    return as_text(documents)


def review_text(place: Place) -> str:
    """SST-2's training sentences, without the parts of them that are examples of their own."""
    lines = (place.data / "glue/SST-2/train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    texts = sorted({line.partition("\t")[0].strip() for line in lines}, key=lambda t: (-len(t), t))
    parts: set[str] = set()
    whole = []
    for text in texts:
        if text in parts:
            continue
        words = text.split()
        whole.append(text)
        parts |= {
            " ".join(words[begin:end])
            for begin in range(len(words))
            for end in range(begin + 1, len(words) + 1)
        }
    return as_text([text] for text in sorted(whole))


def news_text(place: Place) -> str:
    """The words of CoNLL-2003's training set, document by document."""
    documents: list[list[str]] = []
    for block in (place.data / "conll2003/eng.train").read_text(encoding="utf-8").split("\n\n"):
        words = [line.split()[0] for line in block.splitlines()]
        if words[:1] == ["-DOCSTART-"]:
            documents.append([])
        elif words:
            documents[-1].append(" ".join(words))
    return as_text(filter(None, documents))


# ---- Runs ----


def with_head(place: Place) -> Run:
    """MiniLM with a head for masked words, which it gets from Wikipedia."""
    files = "wiki_00" if place.smoke else "wiki_*"
    flags = {
        "adapt": True,
        "corpus_file": place.data / "corpora/enwiki/train" / files,
        "init_checkpoint": place.minilm / "model.safetensors",
        "max_seq_length": small.LENGTH,
        **_budget(place, HEAD_MINUTES),
    }
    return Run("with-head", "run_pretraining.py", flags, "adaptation.json")


def adapted(place: Place, domain: str, minutes: float) -> Run:
    """A domain's model."""
    text = {"docstrings": docstring_text, "reviews": review_text, "newswire": news_text}[domain]
    head = with_head(place)
    flags = {
        "adapt": True,
        "corpus_file": place.made(f"{domain}.txt", lambda: text(place)),
        "general_corpus_file": place.data / "corpora/enwiki/heldout/wiki_*",
        "init_checkpoint": place.of(head),
        **_budget(place, minutes),
    }
    name = f"{domain}-{minutes:g}-minutes"
    return Run(name, "run_pretraining.py", flags, "adaptation.json", after=[head])


def _budget(place: Place, minutes: float) -> dict[str, object]:
    return {"num_train_steps": 2} if place.smoke else {"minutes": minutes}


def task(place: Place, domain: str, model: dict[str, object], after: list[Run]) -> Run:
    """The domain's task from a model, which a run has made, with every seed."""
    name = "-".join([domain, "task", *(run.name for run in after)])
    model = model | {"learning_rate": LEARNING_RATE}
    number = small.steps(place, STEPS[domain])
    if domain == "newswire":
        return small.tags(place, name, model, SENTENCES, after, num_train_steps=number)
    flags = {**small.TUNING, "max_seq_length": small.LENGTH, "num_train_steps": number, **model}
    if domain == "reviews":
        flags |= {
            "task_name": "SST-2",
            "data_dir": place.data / "glue/SST-2",
            "max_train_examples": REVIEWS,
        }
    else:
        for flag, part in (("train_file", "train"), ("dev_file", "test")):
            flags[flag] = place.made(f"libraries-{part}.jsonl", lambda p=part: _labelled(p))
        columns = ("task_name", "text_columns", "label_column", "id_column")
        flags |= {key: libraries.SETTINGS[key] for key in columns}
    return Run(name, "run_classifier.py", flags, seeds=place.seed_range(), after=after)


def _labelled(part: str) -> str:
    """Which library a text is from: JSON lines of the modules of one part."""
    each = EXAMPLES // len(modules.LIBRARIES)
    kinds = [*modules.LIBRARIES.values()]
    sizes = {name: each * (name == part) for name in modules.PARTS}
    found = modules.split_examples(
        modules.installed_modules(), libraries.module_texts, sizes, kinds
    )[part]
    return libraries.labelled_lines(found)


# ---- The tables ----


def models(place: Place, domain: str, minutes: float) -> dict[str, tuple[dict, list[Run]]]:
    """What a domain's task begins with, and what has to be there before."""
    head, own = with_head(place), adapted(place, domain, minutes)
    return {
        "MiniLM as it is": (small.minilm(place), []),
        "with Wikipedia": (small.own(place, head), [head]),
        "adapted": (small.own(place, own), [own]),
    }


def losses(found: dict, domain: str) -> list[str]:
    """A line of the first table, of what is in an adaptation.json."""
    plan = dict(flag.split("=") for flag in found["plan"].split() if "=" in flag)
    sizes = plan["--train_batch_size"], plan["--max_seq_length"]
    line = [domain, f"{found['cost']['steps']:,} of {' × '.join(sizes)}"]
    for text in ("domain", "general"):
        before, after = (found[when][text]["loss_per_word"] for when in ("before", "after"))
        line.append(f"{before:.3f} → {after:.3f} ({after / before - 1:+.1%})")
    pieces = [found["domain"][when]["pieces_per_word"] for when in ("before", "after")]
    words = len(found["domain"]["new_words"])
    return [*line, " → ".join(f"{p:.3f}" for p in pieces), f"{words:,}"]


def main() -> None:
    shared = os.environ.get("BERT_SHARED_DIR", ROOT.parent / "shared")
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shared", type=pathlib.Path, default=pathlib.Path(shared, "data"))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("output/adaptations"))
    parser.add_argument(
        "--minilm", type=pathlib.Path, default=os.environ.get("BERT_MINILM_DIR", "minilm")
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="Domains, with commas between them.")
    parser.add_argument("--smoke", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    chosen = given.only.split(",") if given.only else DOMAINS
    for name in set(chosen) - set(DOMAINS):
        parser.error(f"{name!r} is no domain; they are {', '.join(DOMAINS)}.")
    paths = (path.absolute() for path in (given.shared, given.work, given.minilm))
    place = Place(*paths, pathlib.Path("/"), given.seeds, given.smoke)
    lines, scores = [], []
    try:
        for domain in chosen:
            own = adapted(place, domain, given.minutes)
            for run in (with_head(place), own):
                complete(run, place.work)
            lines.append(losses(json.loads(place.of(own, own.result).read_text()), domain))
        for domain in chosen:
            line = [f"{domain}, {'F1' if domain == 'newswire' else 'accuracy'}"]
            for model, after in models(place, domain, given.minutes).values():
                run = task(place, domain, model, after)
                complete(run, place.work)
                key = "eval_f1" if domain == "newswire" else "eval_accuracy"
                line.append(shown(numbers(Cell("", "", None, run, key, scale=1.0), place.work)))
            scores.append(line)
    except FailedRunError as error:
        sys.exit(str(error))
    header = ["losses per word", "steps", "domain", "general", "pieces per word"]
    text = tabulate(lines, [*header, "new words"], disable_numparse=True)
    names = [*models(place, chosen[0], given.minutes)]
    text += "\n\n" + tabulate(scores, ["task", *names], disable_numparse=True) + "\n"
    (place.work / "adaptations.txt").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
