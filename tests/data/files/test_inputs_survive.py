"""Outputs that are inputs, by any path."""

import os
import types

import pytest

from data.errors import DataError
from data.files.inputs_survive import check_inputs_survive, input_files


@pytest.mark.parametrize("how", ["same", "relative", "symbolic", "hard", "folder"])
def test_an_input_is_no_output(tmp_path, monkeypatch, how):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "a"
    source.write_text("x")
    paths = {"same": f"{source}", "relative": "./a"}
    if how == "folder":
        (tmp_path / "f").symlink_to(tmp_path)
        paths[how] = "f/a"
    elif how not in paths:
        (os.symlink if how == "symbolic" else os.link)(source, tmp_path / "b")
        paths[how] = f"{tmp_path}/b"
    with pytest.raises(DataError, match=r"--output_file would overwrite .*/a.*--input_file names"):
        check_inputs_survive({"input_file": [str(source)]}, {"output_file": [paths[how]]})


def test_other_files_are_fine(tmp_path):
    (tmp_path / "a").touch()
    (tmp_path / "b").touch()
    inputs = {"input_file": [f"{tmp_path}/a", None, ""], "vocab_file": [f"{tmp_path}/absent"]}
    outputs = {"output_file": [f"{tmp_path}/b", None, f"{tmp_path}/c"], "json": []}
    check_inputs_survive(inputs, outputs)


def test_weights_in_a_folder(tmp_path):
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "config.json").touch()

    class Values(dict):
        init_checkpoint = str(tmp_path)

    files = input_files(Values(init_checkpoint=""))["init_checkpoint"]
    assert f"{tmp_path}/model.safetensors" in files and f"{tmp_path}/config.json" not in files


def test_files_that_flags_name(tmp_path):
    for name in ("a.txt", "b.txt", "c"):
        (tmp_path / name).touch()

    class Values(dict):
        data_dir = str(tmp_path)
        init_checkpoint = f"{tmp_path}/m"

    flags = {"train_file": "*.txt, c", "dev_file": ["c"], "test_file": None, "output_file": "c"}
    flags |= {"data_dir": "", "init_checkpoint": ""}
    values = Values({name: types.SimpleNamespace(value=value) for name, value in flags.items()})
    files = input_files(values)
    assert {os.path.basename(path) for path in files["train_file"]} == {
        *("*.txt", "a.txt", "b.txt", "c")
    }
    assert set(files["dev_file"]) == {f"{tmp_path}/c"} and files["test_file"] == []
    assert f"{tmp_path}/m.index" in files["init_checkpoint"] and "output_file" not in files


def test_weights_in_the_output_folder_need_no_flag(tmp_path):
    (tmp_path / "a").touch()
    files = [f"{tmp_path}/a"]
    for flag, left_out in (("init_checkpoint", True), ("train_file", False)):
        with pytest.raises(DataError) as error:
            check_inputs_survive({flag: files}, {"output_dir": files})
        assert ("leave out --init_checkpoint" in str(error.value)) == left_out
