"""The three domains of --adapt: their texts, their commands, and a line of the table."""

import json
import sys

import pytest

from data.demo import modules
from tests.paper import adaptations, experiment
from tests.paper.test_experiment import flags_there_are, place  # noqa: F401


@pytest.fixture
def here(place):  # noqa: F811
    path = place.data / "glue/SST-2/train.tsv"
    path.parent.mkdir(parents=True)
    lines = "good \t1", "a very good film \t1", "film \t0", "bad film \t0", "a very good film \t1"
    path.write_text("\n".join(("sentence\tlabel", *lines)) + "\n")
    return place


def test_reviews_are_whole_sentences(here):
    assert adaptations.review_text(here) == "a very good film\n\nbad film\n\n"


def test_newswire_keeps_documents(here):
    path = here.data / "conll2003/eng.train"
    path.write_text(
        "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\nBonn NNP I-NP I-LOC\n\n"
        "-DOCSTART- -X- O O\n\n-DOCSTART- -X- O O\n\nOne CD I-NP O\n"
    )
    assert adaptations.news_text(here) == "EU rejects\nBonn\n\nOne\n\n"


def test_docstrings_and_labels_share_no_module(here, tmp_path, monkeypatch):
    described = "It returns what {} of the numbers is, in whole and in the order that they had. "
    described += "Nothing of it is copied when {} is not asked for, which saves much memory here. "
    described += "What {} means is the sum of all of these, and nothing else comes into it again. "
    found = []
    for number, (package, library) in enumerate(list(modules.LIBRARIES.items()) * 40):
        path = tmp_path / f"{number}.py"
        words = [f"{word}{number}" for word in ("one", "two", "six")]
        path.write_text(f'"""{described.format(*words)}"""\n')
        name = f"{package}/{number}.py"
        part = modules.part_of_module(name)
        found.append(modules.DemoModule(library, name, str(path), part))
    monkeypatch.setattr(modules, "installed_modules", lambda: found)
    text = adaptations.docstring_text(here)
    assert text.count("\n\n") == sum(module.part == "train" for module in found) > 100
    labelled = {part: adaptations._labelled(part) for part in ("train", "test")}
    for part, lines in labelled.items():
        rows = [json.loads(line) for line in lines.splitlines()]
        assert {row["library"] for row in rows} == set(modules.LIBRARIES.values())
        names = {row["id"].partition(" ")[0] for row in rows}
        assert {modules.part_of_module(name) for name in names} == {part}
    monkeypatch.setattr(modules, "installed_modules", lambda: found[:7] + found)
    assert adaptations.docstring_text(here) == text  # each sentence once


@pytest.mark.parametrize("domain", adaptations.DOMAINS)
def test_commands(here, domain, monkeypatch):
    monkeypatch.setattr(adaptations, "docstring_text", lambda _: "a\nb\n")
    monkeypatch.setattr(adaptations, "_labelled", lambda part: part)
    own = adaptations.adapted(here, domain, 5)
    runs = [*own.after, own]
    for run in runs:
        assert set(run.flags) <= flags_there_are() and run.flags["adapt"]
    assert [run.flags["minutes"] for run in runs] == [adaptations.HEAD_MINUTES, 5]
    assert own.flags["init_checkpoint"] == own.after[0].folders(here.work)[0]
    starts = []
    for model, after in adaptations.models(here, domain, 5).values():
        run = adaptations.task(here, domain, model, after)
        assert set(run.flags) <= flags_there_are() and run.after == after
        assert run.flags["num_train_steps"] == adaptations.STEPS[domain] and len(run.seeds) == 3
        starts.append(str(run.flags["init_checkpoint"].parent))
    assert starts == [str(here.minilm), *(str(run.folders(here.work)[0]) for run in runs)]


FOUND = {
    "plan": "Plan: --max_seq_length=64 --train_batch_size=32 --num_train_steps=1000",
    "cost": {"steps": 1000},
    "before": {"domain": {"loss_per_word": 6.0}, "general": {"loss_per_word": 5.0}},
    "after": {"domain": {"loss_per_word": 4.5}, "general": {"loss_per_word": 5.1}},
    "domain": {
        "before": {"pieces_per_word": 1.2},
        "after": {"pieces_per_word": 1.1},
        "new_words": ["tensor"],
    },
}


def test_tables(here, monkeypatch, capsys):
    made = []

    def complete(run, work):
        made.append(run.name)
        if run.result == "adaptation.json":
            folder = run.folders(work)[0]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / run.result).write_text(json.dumps(FOUND))

    monkeypatch.setattr(adaptations, "complete", complete)
    keys = []
    monkeypatch.setattr(
        adaptations, "numbers", lambda cell, work: keys.append(cell.key) or [0.5, 0.7]
    )
    paths = f"--shared={here.data}", f"--work={here.work}", f"--minilm={here.minilm}"
    monkeypatch.setattr(sys, "argv", ["x", *paths, "--only=reviews,newswire"])
    adaptations.main()
    printed = capsys.readouterr().out
    assert (here.work / "adaptations.txt").read_text() in printed
    reviews, newswire = [line for line in printed.splitlines() if "→" in line]
    assert "1,000 of 32 × 64" in reviews and "6.000 → 4.500 (-25.0%)" in reviews
    assert "5.000 → 5.100 (+2.0%)" in newswire and "1.200 → 1.100" in newswire
    assert printed.count("0.600 ± 0.141 (2)") == 6
    assert keys == ["eval_accuracy"] * 3 + ["eval_f1"] * 3
    assert made[:2] == ["with-head", "reviews-30-minutes"]
    assert made[-1] == "newswire-task-newswire-30-minutes"

    def fail(run, work):
        raise experiment.FailedRunError(f"{run.name}: no memory")

    monkeypatch.setattr(adaptations, "complete", fail)
    with pytest.raises(SystemExit, match=r"^with-head: no memory$"):
        adaptations.main()


def test_an_unknown_domain_is_named(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["x", "--only=reviews,news"])
    with pytest.raises(SystemExit):
        adaptations.main()
    assert "'news' is no domain; they are docstrings, reviews, newswire." in capsys.readouterr().err
