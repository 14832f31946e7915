"""Languages and boilerplate: against sets of lines and known languages, and whole jobs."""

import json
import re
from collections import Counter

import numpy as np
import pytest

from data.errors import DataError
from data.pretraining.corpus import Document
from data.pretraining.writing import cleaning, jobs
from data.pretraining.writing.local import prepared_job, write_job_locally
from tests.data.pretraining.instances.test_generate import TOKENS
from tests.data.pretraining.writing.test_writing import everything, plan, text_of

ENGLISH = ["The ferry leaves the harbour at noon.", "Nobody on board had seen such a storm before."]
GERMAN = [
    "Die Fähre verlässt mittags den Hafen.",
    "Niemand an Bord hatte je so einen Sturm gesehen.",
]
FRENCH = ["Le ferry quitte le port à midi.", "Personne à bord n'avait jamais vu une telle tempête."]
MENU = ["Home  Products Contact", "All rights reserved."]


def documents(seed=0, count=300):
    """Of three languages, some with lines of a menu; three are nothing else."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        lines = [ENGLISH, ENGLISH, GERMAN, FRENCH][number % 4]
        lines = [f"{line} {number}." for line in lines for _ in range(rng.integers(1, 3))]
        if number % 5 == 0:
            lines = [MENU[0].lower() if number % 2 else MENU[0], *lines, MENU[1]]
        if number % 50 == 1:
            lines.insert(1, "Seldom seen.")
        made.append(Document(lines if number % 100 != 7 else list(MENU), f"file:{number}"))
    return made


def in_order(made, parts):
    return [
        made[part * len(made) // parts : (part + 1) * len(made) // parts] for part in range(parts)
    ]


def cleaned(folder, made, parts, **options):
    """(sentences of what is left, what was counted)."""
    cleaner = cleaning.Cleaner(str(folder), **options)
    divided = in_order(made, parts)
    for number, part in enumerate(divided):
        cleaner.scan(number, part)
    cleaner.find_boilerplate(parts)
    left_out = Counter()
    kept = [d for n, part in enumerate(divided) for d in cleaner.clean(n, part, left_out)]
    return [d.sentences for d in kept], left_out


@pytest.mark.parametrize("least", [1, 6, 7, 64, 65])
@pytest.mark.parametrize(("parts", "at_once"), [(1, 10**9), (7, 10**9), (7, 100), (3, 1)])
def test_boilerplate_against_sets(tmp_path, monkeypatch, least, parts, at_once):
    """Whatever is counted at once: all lines, those of some of the ranges, or of one."""
    monkeypatch.setattr(cleaning, "_AT_ONCE", at_once)
    made = documents()
    folded = [[" ".join(line.lower().split()) for line in d.sentences] for d in made]
    counts = Counter(line for lines in folded for line in set(lines))
    kept = [
        [line for line, plain in zip(d.sentences, lines, strict=True) if counts[plain] < least]
        for d, lines in zip(made, folded, strict=True)
    ]
    found, left_out = cleaned(tmp_path, made, parts, boilerplate_documents=least)
    assert found == [lines for lines in kept if lines]
    lines = sum(len(d.sentences) for d in made) - sum(map(len, kept))
    assert left_out["lines of boilerplate"] == lines
    assert left_out["documents of boilerplate alone"] == sum(not lines for lines in kept)
    assert counts["all rights reserved."] > 60 and counts["seldom seen."] == 6


def test_languages(tmp_path):
    made = documents()
    found, left_out = cleaned(tmp_path, made, 3, languages=("de", "fr"))
    expected = [
        d.sentences for number, d in enumerate(made) if number % 4 > 1 and number % 100 != 7
    ]
    assert found == expected
    assert left_out == {"documents in en": len(made) - len(expected)}
    assert cleaning.left_out_text(left_out) == "documents in en: 153"


def test_lines_of_other_languages_are_not_counted(tmp_path):
    made = [Document([*lines, "Version 2.0"], "") for lines in (ENGLISH, GERMAN, FRENCH)]
    found, _ = cleaned(tmp_path, made, 1, languages=("en",), boilerplate_documents=2)
    assert found == [[*ENGLISH, "Version 2.0"]]


def test_only_the_beginning_tells_the_language():
    line = ENGLISH[1]
    many = Document([line] * (cleaning.LANGUAGE_CHARACTERS // len(line) + 1) + GERMAN * 500, "")
    assert cleaning.document_language(many) == "en"
    assert cleaning.document_language(Document([" ".join(GERMAN * 9999)], "")) == "de"


def test_codes_that_no_document_has(tmp_path):
    with pytest.raises(DataError, match=re.escape("'english', but one of these codes")) as caught:
        cleaning.check_languages(["en", "english"])
    assert ", en, " in str(caught.value) and "--languages" in str(caught.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dirty")
    (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
    made = documents()
    (folder / "1.txt").write_text(text_of(made[:170]))
    (folder / "2.txt").write_text(text_of([*made[170:], *made[40:60]]))
    return folder


CLEAN = {"languages": ["en", "de"], "boilerplate_documents": 20, "part_bytes": 5_000}


@pytest.mark.slow
@pytest.mark.parametrize("copies", [{"drop_duplicates": True}, {"near_duplicates": 0.9}])
def test_a_whole_job(folder, tmp_path, copies):
    left = []
    for name, workers in (("one", 1), ("two", 2)):
        (tmp_path / name).mkdir()
        job = plan(folder, tmp_path / name, **CLEAN, **copies)
        assert len(job.corpus) > 3
        counts = write_job_locally(job, workers).counts
        left.append(everything(tmp_path / name))
    assert left[0] == left[1]
    manifest = json.loads(left[0]["made.tfrecord.manifest.json"])
    made = documents()
    both = [*made, *made[40:60]]
    assert manifest["languages"] == ["en", "de"] and manifest["boilerplate_documents"] == 20
    cleaned_of = manifest["cleaned_of"]
    wanted = [d for d in both if "Personne" not in " ".join(d.sentences)]
    assert cleaned_of["documents in fr"] == len(both) - len(wanted)
    # Those of a menu alone.
    assert cleaned_of["documents of boilerplate alone"] == 3
    menus = sum(line.lower() in map(str.lower, MENU) for d in wanted for line in d.sentences)
    assert cleaned_of["lines of boilerplate"] == menus
    assert manifest["copies_left_out"] == sum(d in wanted for d in made[40:60])
    assert counts.documents == len(wanted) - 3 - manifest["copies_left_out"]


def test_an_interrupted_job_goes_on(folder, tmp_path):
    (tmp_path / "whole").mkdir()
    write_job_locally(plan(folder, tmp_path / "whole", **CLEAN))
    (tmp_path / "parted").mkdir()
    job = plan(folder, tmp_path / "parted", **CLEAN)
    with prepared_job(job):
        for part in range(len(job.corpus)):
            jobs.scan_job_part(job, part)
        job.cleaner.find_boilerplate(len(job.corpus))
        jobs.write_job_part(job, 1)
    write_job_locally(job)
    assert everything(tmp_path / "whole") == everything(tmp_path / "parted")


def test_the_same_job_as_before_without(folder, tmp_path):
    """Records made by earlier versions are found again."""
    plain = plan(folder, tmp_path)
    assert not {"languages", "boilerplate_documents"} & jobs.asked_of_job(plain).keys()
    others = [plan(folder, tmp_path, **{name: CLEAN[name]}) for name in list(CLEAN)[:2]]
    assert len({job.fingerprint() for job in (plain, *others)}) == 3
