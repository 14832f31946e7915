"""The student that a run begins as: made once, found again, and no other one."""

import json
import shutil

import pytest
import tensorflow as tf
from absl import flags

from modeling import checkpoints
from modeling.checkpoints.students.making import make_student
from modeling.checkpoints.vocabularies import TextFolding
from modeling.config import BertConfig
from modeling.errors import ModelingError
from modeling.flags import define_model_flags, define_student_flags
from modeling.models import BertClassifier
from modeling.training import given_student
from modeling.training.given_model import open_given_model
from modeling.training.given_student import take_student
from modeling.training.runs import run_folder
from modeling.training.runs.identity import weights_identity

CONFIG = BertConfig(
    vocab_size=9,
    hidden_size=8,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=6,
    max_position_embeddings=8,
)


@pytest.fixture
def teacher(tmp_path):
    return written_teacher(tmp_path, "teacher")


def written_teacher(tmp_path, name):
    vocab = tmp_path / "words.txt"
    vocab.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n")
    model = BertClassifier(CONFIG.with_head("classes", ["no", "yes"]), 2)
    checkpoints.save(model, tmp_path / name, vocab, folding=TextFolding(False))
    return tmp_path / name


def given(tmp_path, monkeypatch, *told, **flag_values):
    """Flag values as a script's command line gives them."""
    values = flags.FlagValues()
    with monkeypatch.context() as patched:
        patched.setattr(flags, "FLAGS", values)
        for kind in ("string", "list", "integer", "enum"):
            define = getattr(flags, f"DEFINE_{kind}")
            patched.setattr(
                flags,
                f"DEFINE_{kind}",
                lambda *a, define=define, **k: define(*a, flag_values=values, **k),
            )
        define_model_flags()
        define_student_flags()
    flags.DEFINE_string("output_dir", None, "", flag_values=values)
    flags.DEFINE_integer("random_seed", 1, "", flag_values=values)
    for name in ("do_train", "do_lower_case", "overwrite_output_dir"):
        flags.DEFINE_bool(name, name != "overwrite_output_dir", "", flag_values=values)
    flags.DEFINE_bool("strip_accents", None, "", flag_values=values)
    told = [*told, f"--output_dir={tmp_path / 'out'}"]
    values(["script", *told, *(f"--{name}={value}" for name, value in flag_values.items())])
    run_folder.prepare_run_folder(values.output_dir)
    return values


def files_of(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_without_its_flags_nothing_changes(tmp_path, monkeypatch, teacher):
    values = given(tmp_path, monkeypatch, init_checkpoint=teacher)
    assert take_student(values) is False
    assert values.init_checkpoint == str(teacher) and not (tmp_path / "out/student").exists()


@pytest.mark.parametrize("config_named", [False, True])
def test_the_flags_mean_the_student_afterwards(tmp_path, monkeypatch, teacher, config_named):
    named = {"bert_config_file": teacher / "bert_config.json"} if config_named else {}
    asked = {"student_layers": "0,2", "student_hidden_size": 4}
    values = given(tmp_path, monkeypatch, init_checkpoint=teacher, **asked, **named)
    assert open_given_model(values).num_hidden_layers == 3
    assert take_student(values) is True
    config = open_given_model(values)
    assert (config.num_hidden_layers, config.hidden_size, config.labels) == (2, 4, ["no", "yes"])
    assert values.init_checkpoint == str(tmp_path / "out/student")
    assert values.do_lower_case is False
    make_student(teacher, tmp_path / "want", [0, 2], 4)
    assert weights_identity(values.init_checkpoint) == weights_identity(tmp_path / "want")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["student"]


def test_a_later_session_finds_it(tmp_path, monkeypatch, teacher):
    for student_seed in (1, 2):  # random weights are the only ones that a seed changes
        values = given(
            tmp_path,
            monkeypatch,
            *("--student_num_layers=2", f"--random_seed={student_seed}"),
            init_checkpoint=teacher,
        )
        take_student(values)
        if student_seed == 1:
            first = files_of(tmp_path / "out/student")
    assert files_of(tmp_path / "out/student") == first


@pytest.mark.parametrize("change", ["teacher", "layers", "damage"])
def test_another_one_takes_its_place(tmp_path, monkeypatch, teacher, change):
    take_student(given(tmp_path, monkeypatch, student_layers="0,2", init_checkpoint=teacher))
    layers = "1,2" if change == "layers" else "0,2"
    if change == "teacher":
        shutil.rmtree(teacher)
        assert written_teacher(tmp_path, "teacher") == teacher
    if change == "damage":
        (tmp_path / "out/student/bert_model.ckpt.index").unlink()
    take_student(given(tmp_path, monkeypatch, student_layers=layers, init_checkpoint=teacher))
    make_student(teacher, tmp_path / "want", [int(layer) for layer in layers.split(",")])
    found = [weights_identity(tmp_path / name) for name in ("out/student", "want")]
    assert found[0] == found[1]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["student"]


@pytest.mark.parametrize("name", ["tokenizer_config.json", "labels.json"])
def test_what_lies_beside_the_teacher_makes_another_one(tmp_path, monkeypatch, teacher, name):
    """Folding that was corrected, say; its weights are the same ones."""
    (teacher / "labels.json").write_text('{"labels": ["no", "yes"]}')
    take_student(given(tmp_path, monkeypatch, student_layers="0,2", init_checkpoint=teacher))
    text = (teacher / name).read_text().replace("false", "true").replace("no", "nay")
    (teacher / name).write_text(text)
    take_student(given(tmp_path, monkeypatch, student_layers="0,2", init_checkpoint=teacher))
    written = (tmp_path / "out/student" / name).read_text()
    assert '"do_lower_case": true' in written or "nay" in written


@pytest.mark.parametrize("moment", range(4))
def test_killed_at_any_moment(tmp_path, monkeypatch, teacher, moment):
    """There is the whole student or none, and the next session has it."""

    class Killed(BaseException):
        pass

    renamed = []
    rename = tf.io.gfile.rename

    def killing(*arguments, **keywords):
        if len(renamed) == killed_at:
            raise Killed
        renamed.append(arguments)
        rename(*arguments, **keywords)

    earlier = given(tmp_path, monkeypatch, student_layers="0", init_checkpoint=teacher)
    take_student(earlier)
    # The last two renames put the folder in its place.
    with monkeypatch.context() as patched:
        killed_at = 10**6
        patched.setattr(tf.io.gfile, "rename", killing)
        take_student(given(tmp_path, monkeypatch, student_layers="1", init_checkpoint=teacher))
        killed_at = [0, len(renamed) // 2, len(renamed) - 2, len(renamed) - 1][moment]
        renamed.clear()
        values = given(tmp_path, monkeypatch, student_layers="2", init_checkpoint=teacher)
        with pytest.raises(Killed):
            take_student(values)
    folder = tmp_path / "out/student"
    assert folder.exists() == (moment < 3)
    if folder.exists():
        assert json.loads((folder / "student.json").read_text())["layers"] == [1]
    values = given(tmp_path, monkeypatch, student_layers="2", init_checkpoint=teacher)
    take_student(values)
    make_student(teacher, tmp_path / "want", [2])
    assert weights_identity(folder) == weights_identity(tmp_path / "want")


def test_a_run_that_is_replaced_comes_back_with_its_student(tmp_path, monkeypatch, teacher):
    """--overwrite_output_dir: the student goes and comes with the run that it belongs to."""
    take_student(given(tmp_path, monkeypatch, student_layers="0", init_checkpoint=teacher))
    out, before = str(tmp_path / "out"), files_of(tmp_path / "out/student")
    run_folder.set_run_aside(out)
    assert not (tmp_path / "out/student").exists()
    take_student(given(tmp_path, monkeypatch, student_layers="1", init_checkpoint=teacher))
    run_folder.restore_run(out)  # the new run was refused
    assert files_of(tmp_path / "out/student") == before
    run_folder.set_run_aside(out)
    take_student(given(tmp_path, monkeypatch, student_layers="1", init_checkpoint=teacher))
    run_folder.forget_run(out)
    record = json.loads((tmp_path / "out/student/student.json").read_text())
    assert record["layers"] == [1]


def test_a_folder_of_that_name_that_is_no_student(tmp_path, monkeypatch, teacher):
    """Such as a student's own output folder, inside of its teacher's."""
    theirs = tmp_path / "out/student/model.ckpt-5.index"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("trained")
    run_folder.set_run_aside(str(tmp_path / "out"))
    values = given(tmp_path, monkeypatch, student_layers="0", init_checkpoint=teacher)
    with pytest.raises(ModelingError, match=r"student.json.*is missing or damaged"):
        take_student(values)
    assert theirs.read_text() == "trained"


@pytest.mark.parametrize(
    "told, message",
    [
        (("--student_layers=0",), "--init_checkpoint is missing"),
        (("--student_layers=0", "--nodo_train", "TEACHER"), "go with --do_train"),
        (("--student_layers=0,3", "TEACHER"), "no layer 3"),
        (("--student_layers=0", "--student_num_layers=1", "TEACHER"), "exclude each other"),
        (("--student_hidden_size=6", "TEACHER"), "its heads are 4"),
        (("--student_projection=random", "TEACHER"), "give --student_hidden_size"),
    ],
)
def test_what_it_refuses(tmp_path, monkeypatch, teacher, told, message):
    told = [f"--init_checkpoint={teacher}" if flag == "TEACHER" else flag for flag in told]
    with pytest.raises(ModelingError, match=message):
        take_student(given(tmp_path, monkeypatch, *told))
    assert list((tmp_path / "out").iterdir()) == []


def test_another_vocabulary_than_the_teacher_s(tmp_path, monkeypatch, teacher):
    other = tmp_path / "other.txt"
    other.write_text("[PAD]\n[UNK]\n[SEP]\n[CLS]\n[MASK]\n")
    values = given(
        tmp_path, monkeypatch, "--student_layers=0", init_checkpoint=teacher, vocab_file=other
    )
    with pytest.raises(ModelingError, match="belongs to another vocabulary"):
        take_student(values)


def test_only_the_first_worker_writes(tmp_path, monkeypatch, teacher):
    reached = []
    monkeypatch.setattr(given_student, "is_chief", lambda: False)
    monkeypatch.setattr(given_student, "wait_for_workers", lambda: reached.append("here"))
    values = given(tmp_path, monkeypatch, student_layers="0", init_checkpoint=teacher)
    assert take_student(values) and len(reached) == 1
    assert values.init_checkpoint == str(tmp_path / "out/student")
    assert list((tmp_path / "out").iterdir()) == []
