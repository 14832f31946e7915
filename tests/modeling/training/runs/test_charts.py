"""Charts: PNGs of sane size under their final names only, the same for the same values."""

import operator
import struct

import numpy as np
import pytest
import tensorflow as tf

from modeling.errors import ModelingError
from modeling.metrics import first_best_metric
from modeling.training.runs import charts
from modeling.training.runs.charts import confusion_png, spread_png


def png_size(path):
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR"
    return struct.unpack(">II", data[16:24])


def pixels(path):
    return tf.io.decode_png(path.read_bytes(), channels=3).numpy().reshape(-1, 3)


def seen(warnings):
    """All but those of an older Matplotlib's own calls of a newer parser, which users don't see."""
    return [w for w in warnings if w.category.__name__ != "PyparsingDeprecationWarning"]


def run(setting, value, degenerate=False):
    return {"setting": setting, "value": value, "degenerate": degenerate}


@pytest.mark.parametrize(("count", "least", "most"), [(2, 250, 900), (60, 1500, 2700)])
def test_confusion(count, least, most, tmp_path, recwarn):
    random = np.random.default_rng(count)
    matrix = random.poisson(0.5, (count, count)) + np.diag(random.integers(5, 3000, count))
    matrix[-1] = 0  # a class without examples
    path = tmp_path / "confusion.png"
    for _ in range(2 if count == 2 else 1):  # also over an older one
        confusion_png(matrix, [f"a class with $a very long$ name {n}" for n in range(count)], path)
    assert all(least < side < most for side in png_size(path))
    assert [p.name for p in tmp_path.iterdir()] == ["confusion.png"]
    assert not seen(recwarn)


def test_more_classes_make_no_larger_picture(tmp_path):
    path = tmp_path / "confusion.png"
    confusion_png(np.eye(300, dtype=int), [str(n) for n in range(300)], path)
    assert all(side < 2700 for side in png_size(path))


def test_colours_are_those_of_the_row(tmp_path):
    """A rare class that is always right is as dark as a frequent one."""

    def dark(matrix):
        confusion_png(matrix, ["a", "b"], tmp_path / "x.png")
        darkest = np.array([8, 48, 107])  # of the colour map
        return (np.abs(pixels(tmp_path / "x.png").astype(int) - darkest).sum(1) < 6).sum()

    balanced, rare, wrong = dark([[500, 0], [0, 500]]), dark([[500, 0], [0, 2]]), dark([[5, 5]] * 2)
    assert abs(balanced - rare) < 0.05 * balanced
    assert balanced > 10_000 > 10 * wrong


def test_names():
    long = "a" * 30
    shown = charts._shown_names(
        ["x\ny", "", long, long + "a", "b" * 15 + "c" * 15, "\U0010fffd"], 22
    )
    assert shown[:2] == ["x y", "(empty)"]
    assert shown[2:4] == ["aaaaaaaaaaaaaaaaa…#2", "aaaaaaaaaaaaaaaaa…#3"]
    assert shown[4:] == ["bbbbbbbbbbb…cccccccccc", "#5"]
    assert all(len(name) <= 22 for name in shown)


def test_spread(tmp_path, recwarn):
    rows = [run(f"lr {lr}", 0.5 + lr / 100 + n / 50, n == 0) for lr in (5, 4, 3) for n in range(5)]
    rows += [run("lr 2", float("nan"), True), run("alone", 0.7)]
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for path in paths:
        spread_png(rows, path, "accuracy")
    width, height = png_size(paths[0])
    assert 400 < width < 1500 and 300 < height < 1000
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "b.png"]
    many = [run(f"learning rate {a}, batch size {b}", a + b) for a in range(8) for b in range(8)]
    spread_png(many, tmp_path / "c.png", "mse")
    assert all(side < 2700 for side in png_size(tmp_path / "c.png"))
    assert not seen(recwarn)


def test_best_and_degenerate_runs_show(tmp_path):
    def blue(degenerate):
        rows = [run("a", 0.1, degenerate), run("a", 0.2, degenerate)]
        spread_png(rows, tmp_path / "x.png", "accuracy")
        return (pixels(tmp_path / "x.png") == [0, 0x72, 0xB2]).all(1).sum()

    assert blue(False) > 1.5 * blue(True) > 0
    rows = [run("a", 0.3), run("b", float("inf")), run("b", 0.1), run("c", 0.3)]
    assert first_best_metric("accuracy", rows, operator.itemgetter("value")) is rows[0]
    assert first_best_metric("mse", rows, operator.itemgetter("value")) is rows[2]
    spread_png(rows[1:2], tmp_path / "none.png", "mse")  # nothing to draw is no error
    assert png_size(tmp_path / "none.png")


def test_jitter_sets_neighbours_apart():
    values = np.array([0.5, 0.1, 0.5, 0.3, 0.5])
    offsets = charts._jitter(values)
    assert len(set(offsets[values == 0.5])) == 3 and np.abs(offsets).max() < 0.2
    np.testing.assert_array_equal(offsets, charts._jitter(values))


def test_written_to_other_file_systems(tmp_path):
    folder = "ram://charts/deep"  # kept by TensorFlow in memory
    spread_png([run("a", 1.0)], f"{folder}/s.png", "accuracy")
    assert tf.io.gfile.listdir(folder) == ["s.png"]
    with tf.io.gfile.GFile(f"{folder}/s.png", "rb") as file:
        assert file.read().startswith(b"\x89PNG")


def test_what_is_refused(tmp_path):
    with pytest.raises(ModelingError, match=r"shape \(2, 3\) for 2 class names"):
        confusion_png(np.ones((2, 3)), ["a", "b"], tmp_path / "x.png")
    with pytest.raises(ModelingError, match="no runs to draw"):
        spread_png([], tmp_path / "x.png", "accuracy")
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelingError, match="Can't write"):
        spread_png([run("a", 1.0)], tmp_path / "file" / "x.png", "accuracy")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
