"""--student: what is refused, and the table of what students keep and gain.

That the whole way works is a matter of the documents' commands, see tests/test_readme.py.
"""

import types

import pytest

from modeling import checkpoints
from modeling.config import BertConfig
from modeling.models import BertClassifier
from modeling.training.distillation import students
from modeling.training.distillation.measuring import MeasuredExport
from modeling.training.distillation.teaching import Teaching
from tests.scripts import messages

CONFIG = {"vocab_size": 20, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}


def test_what_is_refused(tmp_path):
    config = BertConfig(num_hidden_layers=4, **CONFIG).with_head("classes", ["a", "b"])
    model = BertClassifier(config, 2)
    model.build()
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmno"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n")
    checkpoints.save(model, tmp_path / "large", tmp_path / "vocab.txt")
    out, large = f"--output_dir={tmp_path}/out", f"--init_checkpoint={tmp_path}/large"
    said = messages(
        "run_classifier.py",
        [out, "--student=2"],
        [out, large, "--student=5"],
        [out, large, "--student=2,2"],
        [out, large, "--student=half"],
        [out, large, "--student=2", "--student_layers=0,1"],
        [out, large, "--student=1,01"],
        [out, large, "--student=2", "--do_predict", f"--teacher={tmp_path}/large"],
        [out, large, "--student=2", "--export_format=tflite"],
    )
    parts = ("give its folder as --init_checkpoint", "from 1 to the 4 of", "each once")
    parts += ("--student is half", "--student_layers and --student exclude", "--student is 1,01")
    parts += ("--teacher and --do_predict and --student exclude",)
    parts += ("--export_format=tflite allows in other programs",)
    for text, part in zip(said, parts, strict=True):
        assert part in text, text
    assert not (tmp_path / "out").exists()


def test_the_table():
    rows = [
        students._Row(
            name,
            BertConfig(num_hidden_layers=layers, **CONFIG),
            1000 * layers,
            {"accuracy": 0.5, "f1": f1},
            "f1",
            MeasuredExport(layers / 2, {32: layers, 128: 4 * layers}, 1200 / layers),
        )
        for name, layers, f1 in (("teacher", 6, 0.8), ("student-3", 3, 0.76))
    ]
    header, teacher, student = students._cells(rows)
    assert header[4:7] == ["f1", "accuracy", "kept"]
    cells = dict(zip(header, student, strict=True))
    assert cells["kept"] == "95.0%" and cells["speed"] == "2.00×" and cells["f1"] == "0.76"
    assert cells["ms, 32 pieces"] == "3.00" and cells["ms, 128 pieces"] == "12.00"
    assert cells["MB"] == "1.5" and cells["layers"] == "3" and cells["parameters"] == "3,000"
    assert dict(zip(header, teacher, strict=True))["kept"] == "100.0%"


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("eval_results.json", '{"exact_match": 50.0, "f1": 60.5}', {"exact_match": 50, "f1": 60.5}),
        (
            "eval_results.txt",
            "eval_f1 = 0.5\neval_loss = 1.0\nglobal_step = 7\neval_matthews = undefined\n",
            {"f1": 0.5},
        ),
    ],
)
def test_results_of_a_run(tmp_path, name, text, found):
    (tmp_path / name).write_text(text)
    assert students._results(str(tmp_path)) == found


@pytest.mark.parametrize("head", ["choices", "classes", "tags"])
def test_a_teacher_of_other_pieces_answers_choices_as_they_are(monkeypatch, head):
    """Places of an answer are the choices, in the same order; of tags they are pieces."""
    monkeypatch.setattr(Teaching, "_stored", lambda self, teacher, split, of, compute: of or "own")
    teaching = object.__new__(Teaching)
    split = type("Split", (list,), {"fingerprint": "ours", "places_in": len})("ab")
    theirs = type("Split", (list,), {"fingerprint": "theirs"})("ab")
    teaching.head, teaching.by_place, teaching.train = head, head != "classes", [split]
    teacher = types.SimpleNamespace(own_splits=[theirs], compute=len, path="t")
    found = teaching._answers_in_pieces(teacher, split)
    assert found == ("theirs" if head == "tags" else "own")
