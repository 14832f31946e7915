"""An earlier run's files are set aside for one that replaces it, and lost only once that stands."""

import pytest
import tensorflow as tf

from modeling.training.runs import run_folder

WRITTEN = {"model.ckpt-3.index": "of step 3", "best/model.index": "the best", "labels.json": "{}"}


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)


def content(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, WRITTEN | {"notes.txt": "of the user"})
    return tmp_path


def test_what_comes_to_nothing_leaves_the_earlier_run(folder):
    before = content(folder)
    run_folder.set_run_aside(str(folder))
    assert not run_folder.run_checkpoint_steps(str(folder))
    assert (folder / "notes.txt").exists()
    write(folder, {"labels.json": '{"of": "the new run"}', "metrics.jsonl": "{}"})
    run_folder.restore_run(str(folder))
    assert content(folder) == before


def test_whether_there_is_a_model(folder, tmp_path):
    assert run_folder.holds_model(str(folder))
    # A command that was refused leaves labels, and a student that was made is not yet trained.
    refused = tmp_path / "refused"
    write_into = {"labels.json": "{}", "student/bert_model.ckpt.index": "", "runs/a/x": ""}
    refused.mkdir()
    for name, content in write_into.items():
        (refused / name).parent.mkdir(exist_ok=True, parents=True)
        (refused / name).write_text(content)
    assert not run_folder.holds_model(str(refused))
    assert not run_folder.holds_model(str(tmp_path / "nothing"))
    (refused / "bert_config.json").write_text("{}")
    assert run_folder.holds_model(str(refused))


def test_what_stands_takes_its_place(folder):
    run_folder.set_run_aside(str(folder))
    write(folder, {"model.ckpt-1.index": "of the new run"})
    run_folder.forget_run(str(folder))
    run_folder.restore_run(str(folder))
    assert content(folder) == {"notes.txt": "of the user", "model.ckpt-1.index": "of the new run"}


@pytest.mark.parametrize("last", range(1, 9))
def test_killed_between_any_two_moves(folder, monkeypatch, last):
    """Aside and back again; wherever the process ends, the next start brings everything back."""
    before, moves = content(folder), []
    rename = tf.io.gfile.rename

    def die(*names, **options):
        moves.append(names)
        if len(moves) == last:
            raise KeyboardInterrupt
        rename(*names, **options)

    monkeypatch.setattr(tf.io.gfile, "rename", die)
    with pytest.raises(KeyboardInterrupt):
        run_folder.set_run_aside(str(folder))
        write(folder, {"labels.json": '{"of": "the new run"}'})
        run_folder.restore_run(str(folder))
    monkeypatch.undo()
    run_folder.restore_run(str(folder))
    assert content(folder) == before


def test_a_folder_without_a_run_stays_as_it_is(tmp_path):
    write(tmp_path, {"notes.txt": "of the user"})
    run_folder.set_run_aside(str(tmp_path))
    assert content(tmp_path) == {"notes.txt": "of the user"}
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_what_was_found_out_about_older_weights_goes(folder):
    found = ("label_thresholds", "temperature", "answer_calibration", "null_score_diff_threshold")
    write(folder, {f"{name}.json": "{}" for name in found})
    run_folder.remove_tuned(str(folder))
    assert content(folder) == WRITTEN | {"notes.txt": "of the user"}
