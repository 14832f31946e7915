"""Writes small files in the forms of public data sets, for the commands of the documents.

    python -m tests.readme.small_data own glue squad conll corpus libraries

Each name is a kind: own/ (reviews as .csv), glue/MRPC/, squad/, conll/, corpus/ and libraries/
(every fiftieth text of run_classifier.py's demo).
"""

import csv
import json
import pathlib
import random
import sys

NAMES = ["Anna", "Bert", "Clara", "David", "Emma"]
TOWNS = ["Berlin", "London", "Paris", "Rome"]


def sentence(draw: random.Random) -> tuple[str, str, str]:
    """A sentence, who is named in it, and where."""
    name, town = draw.choice(NAMES), draw.choice(TOWNS)
    form = draw.choice(["{} saw the film in {} .", "It was {} who left {} .", "{} is from {} ."])
    return form.format(name, town), name, town


def own(draw: random.Random) -> None:
    """own/train.csv with a title, a text and the verdict; own/new.csv without the verdict."""
    for name, columns in (("train", 3), ("new", 2)):
        with open(f"own/{name}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["title", "body", "verdict"][:columns])
            for number in range(60):
                verdict = draw.choice(["good", "bad"])
                text = f"{sentence(draw)[0]} The film was {verdict}."
                writer.writerow([f"No. {number}", text, verdict][:columns])


def glue(draw: random.Random) -> None:
    """glue/MRPC/ with its three files."""
    pathlib.Path("glue/MRPC").mkdir()
    for name, count in (("train", 64), ("dev", 16), ("test", 16)):
        first = "index" if name == "test" else "Quality"
        rows = [f"{first}\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        for number in range(count):
            one, other = sentence(draw)[0], sentence(draw)[0]
            label = number if name == "test" else draw.randrange(2)
            rows.append(f"{label}\t{number}\t{number + 500}\t{one}\t{one if label else other}")
        pathlib.Path(f"glue/MRPC/{name}.tsv").write_text("\n".join(rows) + "\n")


def squad(draw: random.Random) -> None:
    """squad/train-v1.1.json and squad/dev-v1.1.json."""
    for name, count in (("train", 24), ("dev", 8)):
        paragraphs = []
        for number in range(count):
            context, who, where = sentence(draw)
            asked = [("Who?", who), ("Where?", where)]
            questions = [
                {
                    "id": f"{number}{question}",
                    "question": question,
                    "answers": [{"text": answer, "answer_start": context.index(answer)}],
                }
                for question, answer in asked
            ]
            paragraphs.append({"context": context, "qas": questions})
        data = {"version": "1.1", "data": [{"title": "Films", "paragraphs": paragraphs}]}
        pathlib.Path(f"squad/{name}-v1.1.json").write_text(json.dumps(data))


def conll(draw: random.Random) -> None:
    """conll/eng.train, eng.testa and eng.testb: words and tags, documents of eight sentences."""
    for name, count in (("train", 240), ("testa", 16), ("testb", 16)):
        lines = []
        for number in range(count):
            lines += [] if number % 8 else ["-DOCSTART- O", ""]
            text, who, where = sentence(draw)
            tags = {who: "B-PER", where: "B-LOC"}
            lines += [*(f"{word} {tags.get(word, 'O')}" for word in text.split()), ""]
        pathlib.Path(f"conll/eng.{name}").write_text("\n".join(lines))


def corpus(draw: random.Random) -> None:
    """corpus/a.txt and corpus/b.txt: sentences, with a blank line between documents."""
    for name in "ab":
        documents = ["\n".join(sentence(draw)[0] for _ in range(12)) for _ in range(40)]
        pathlib.Path(f"corpus/{name}.txt").write_text("\n\n".join(documents) + "\n")


def libraries(_: random.Random) -> None:
    """libraries/train.jsonl, dev.jsonl and test.jsonl."""
    from data.demo.libraries import make_library_demo

    make_library_demo("libraries")
    for path in pathlib.Path("libraries").iterdir():
        path.write_text("".join(path.read_text().splitlines(keepends=True)[::50]))


KINDS = {made.__name__: made for made in (own, glue, squad, conll, corpus, libraries)}


def main() -> None:
    for kind in sys.argv[1:]:
        pathlib.Path(kind).mkdir()
        KINDS[kind](random.Random(kind))


if __name__ == "__main__":
    main()
