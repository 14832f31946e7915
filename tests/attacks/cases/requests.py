"""What exported models are asked."""

from tests.attacks import damages as d
from tests.attacks import world
from tests.attacks.cases.tables import json_lines
from tests.attacks.suite import Case

EXAMPLE = world.serialized_example
NOTHING = {"b64": ""}
LONG = "ann is the film " * 1_300_000  # 20 MB


def examples(*values) -> d.Damage:
    return d.holding(json_lines(*({"examples": value} for value in values)))


CASES = [
    *(
        Case(
            "prediction of examples",
            "serialized examples",
            spoil={"examples.jsonl": how},
            says=says,
        )
        for how, says in (
            (examples(EXAMPLE("words", "a film")), ("examples.jsonl:1", "text_a")),
            (
                examples(EXAMPLE("text_a", "a"), EXAMPLE("txt", "a film")),
                ("examples.jsonl:2", "text_a"),
            ),
            (examples(NOTHING), ("examples.jsonl:1", "text_a")),
            (examples("no example"), ("examples.jsonl:1",)),
            (examples({"b64": "AAAA"}), ("examples.jsonl:1",)),
            (examples({"b64": "no base64"}), ("examples.jsonl:1",)),
            (examples(5), ("examples.jsonl:1",)),
        )
    ),
    *(
        Case(
            job,
            "texts of 20 MB",
            (f"--input_file={name}",),
            {name: d.holding(content)},
            (f"{name}:1",),
            # 20 MB are cut into pieces before they are found to be too many.
            bytes=2e9,
            seconds=60,
        )
        for job, name, content in (
            ("prediction of tags", "own.txt", LONG + "\n"),
            (
                "prediction of answers",
                "own.jsonl",
                json_lines({"question": "who", "context": LONG}),
            ),
        )
    ),
    *(
        Case(
            "prediction",
            "asking for pieces",
            ("--signature=tokenized", "--input_file=own.jsonl"),
            {"own.jsonl": d.holding(json_lines(row))},
            ("own.jsonl:1",),
        )
        for row in (
            {"input_ids": [2, 99, 3], "input_mask": [1, 1, 1], "segment_ids": [0, 0, 0]},
            {"input_ids": [2, -1, 3], "input_mask": [1, 1, 1], "segment_ids": [0, 0, 0]},
            {"input_ids": [2, 5, 3], "input_mask": [1, 7, 1], "segment_ids": [0, 0, 0]},
            {"input_ids": [2, 5, 3], "input_mask": [1, 1, 1], "segment_ids": [0, 0, 99]},
            {"input_ids": [2, 5, 3], "input_mask": [1, 1], "segment_ids": [0, 0, 0]},
            {"input_ids": [2, 5, 3], "input_mask": [1, 1, 1]},
            {"input_ids": [2, 5.5, 3], "input_mask": [1, 1, 1], "segment_ids": [0, 0, 0]},
            {"input_ids": [2, 2**40, 3], "input_mask": [1, 1, 1], "segment_ids": [0, 0, 0]},
            {"input_ids": "2 5 3", "input_mask": [1, 1, 1], "segment_ids": [0, 0, 0]},
            {"input_ids": [[2, 5, 3]], "input_mask": [1, 1, 1], "segment_ids": [0, 0, 0]},
            {"input_ids": [2] * 100, "input_mask": [1] * 100, "segment_ids": [0] * 100},
        )
    ),
]
