"""What a TF-Hub SavedModel tells besides its weights, and damaged ones."""

import shutil

import pytest

from modeling.checkpoints import check_vocabulary, open_contents
from modeling.checkpoints.formats import hub
from modeling.errors import ModelingError


@pytest.fixture
def saved_model(formats, tmp_path):
    return shutil.copytree(formats / "tfhub", tmp_path / "saved")


def test_vocabulary_and_casing(saved_model):
    file = hub.hub_file(str(saved_model))
    assert file == str(saved_model / "saved_model.pb") == hub.hub_file(file)
    assert hub.hub_vocabulary(file) == str(saved_model / "assets" / "vocab.txt")
    assert hub.hub_do_lower_case(file) is True


def test_vocabulary_outside_its_folder_is_not_taken(saved_model):
    graph = saved_model / "saved_model.pb"
    # Of the same length, so that the message stays whole.
    graph.write_bytes(graph.read_bytes().replace(b"vocab.txt", b"../../a.t"))
    assert hub.hub_vocabulary(str(graph)) is None


def test_without_its_vocabulary(saved_model):
    (saved_model / "assets" / "vocab.txt").unlink()
    assert hub.hub_vocabulary(str(saved_model / "saved_model.pb")) is None


def test_another_saved_model_is_not_taken(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"")
    assert hub.hub_file(str(tmp_path)) is None
    assert hub.hub_file(str(tmp_path / "nothing")) is None


@pytest.mark.parametrize(
    "name",
    ["saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"],
)
@pytest.mark.parametrize("damage", ["truncated", "shuffled"])
def test_damaged(saved_model, name, damage):
    file = saved_model / name
    content = file.read_bytes()
    half = len(content) // 2
    file.write_bytes(content[:half] if damage == "truncated" else content[half:] + content[:half])
    with pytest.raises(ModelingError) as raised:
        held = open_contents(saved_model)
        for weight in held.shapes:
            held.read(weight)
    assert "\n\n" not in str(raised.value)
    assert str(saved_model) in str(raised.value)


def test_ids_of_another_vocabulary_are_refused(saved_model, tmp_path):
    own = saved_model / "assets" / "vocab.txt"
    check_vocabulary(saved_model, own)
    other = tmp_path / "vocab.txt"
    other.write_text("".join(reversed(own.read_text().splitlines(keepends=True))))
    with pytest.raises(ModelingError, match="belongs to another vocabulary"):
        check_vocabulary(saved_model, other)
