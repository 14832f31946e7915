"""What the reporter writes and shows: files, status lines, progress, plot."""

import json
import math
import pathlib

import matplotlib.image
import numpy as np
import pytest
import tensorflow as tf

from modeling import logs
from modeling.errors import ModelingError
from modeling.training.runs import reporting
from modeling.training.runs.reporting import Reporter, write_run_results

ROOT = pathlib.Path(__file__).resolve().parents[4]


def history(steps=2, **others):
    """As of `steps` steps with 3 real tokens in 4 places each."""
    pairs = {
        "loss": [(2.0 + step, 1.0) for step in range(steps)],
        "masked_lm_accuracy": [(step, 4.0) for step in range(steps)],
        "tokens": [(3.0, 4.0)] * steps,
        "learning_rate": [(1e-4 * (step + 1), 1.0) for step in range(steps)],
        "gradient_norm": [(5.0, 1.0)] * steps,
    }
    return pairs | others


def lines(folder):
    def refuse(word):
        raise ValueError(word)  # NaN and Infinity, which JSON doesn't have

    text = (folder / reporting.METRICS_FILE).read_text(encoding="utf-8")
    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def scalars(folder):
    """Name → {step: value} of the event files."""
    found = {}
    for path in folder.glob("events*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = float(tf.make_ndarray(value.tensor))
    return found


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until a test moves it."""
    now = [100.0]
    monkeypatch.setattr(reporting.time, "perf_counter", lambda: now[0])
    return now


def test_files_hold_rates_and_padding(tmp_path, clock, caplog):
    reporter = Reporter(str(tmp_path), 10, 8)
    clock[0] += 1.0
    reporter.add(history())
    reporter.batch_size = 4  # the next phase's
    clock[0] += 1.0
    reporter.add(history())
    with caplog.at_level("INFO"):
        reporter.report(4)
    (line,) = lines(tmp_path)
    assert line == {
        "kind": "train",
        "step": 4,
        "loss": 2.5,
        "masked_lm_accuracy": 0.125,
        "learning_rate": 2e-4,
        "gradient_norm": 5.0,
        "examples_per_second": 12.0,  # (2·8 + 2·4) / 2 s
        "tokens_per_second": 6.0,
        "padding_share": 0.25,
    }
    assert caplog.messages == [
        "step 4/10  loss 2.5000  mlm_accuracy 0.1250  lr 0.0002  12.0 examples/s  ETA 0:03"
    ]
    events = scalars(tmp_path)
    assert events.keys() == {f"train/{name}" for name in line if name not in ("kind", "step")}
    assert all(value == {4: pytest.approx(line[n[6:]])} for n, value in events.items())


def test_share_of_the_peak(tmp_path, clock, caplog):
    reporter = Reporter(str(tmp_path), 10, 8)
    reporter.peak_flops = 8e9
    for step, seconds in ((2, 2.0), (4, 0.25)):
        reporter.add(history(flops=[(3e9, 1.0), (1e9, 1.0)]))
        clock[0] += seconds
        with caplog.at_level("INFO"):
            reporter.report(step)
    slow, fast = lines(tmp_path)
    assert (slow["flops_per_second"], slow["flops_utilisation"]) == (2e9, 0.25)
    assert caplog.messages[0].endswith("ETA 0:08  25 % of peak FLOPs")
    # Faster than at its peak: that was measured too low.
    assert (fast["flops_per_second"], fast["flops_utilisation"]) == (16e9, 1.0)
    assert "flops" not in fast


def eta_seconds(text):
    """Of a line that ends with it."""
    return sum(int(n) * 60**i for i, n in enumerate(reversed(text.split("ETA ")[1].split(":"))))


def test_the_time_left_holds_within_a_twentieth(tmp_path, clock, caplog):
    """Steps that take now less and now more, evaluations between them, the first one compiled."""
    reporter = Reporter(str(tmp_path), 1000, 8)
    reporter.work = lambda step: float(step + 3 * max(0, step - 400))  # a second phase
    rng, told = np.random.default_rng(1), []
    for step in range(2, 1001, 2):
        noise = rng.uniform(0.7, 1.3)
        clock[0] += noise * (reporter.work(step) - reporter.work(step - 2))
        clock[0] += 60.0 * (step == 2)
        reporter.add(history())
        with caplog.at_level("INFO"):
            reporter.report(step)
        told.append((step, clock[0], eta_seconds(caplog.messages[-1])))
        if step % 50 == 0:
            clock[0] += 0.1 * (reporter.work(step) - reporter.work(step - 50))
            reporter.start_clock()
    evaluation = 0.1 * (reporter.work(1000) - reporter.work(950))
    errors = [abs(eta - (clock[0] - now)) for step, now, eta in told if step > 200]
    left = [clock[0] - now for step, now, _ in told if step > 200]
    # The last evaluation comes after the last step, and half a one is what a step can't know.
    beyond = [e - 0.05 * s for e, s in zip(errors, left, strict=True)]
    assert max(beyond) <= 1.5 * evaluation


def test_what_stopped_a_session_is_forgotten_after_as_many_steps(tmp_path, clock):
    reporter = Reporter(str(tmp_path), 1000, 8)
    for step in range(2, 402, 2):
        clock[0] += 3600.0 if step == 200 else 2.0
        reporter.add(history())
    assert reporter._pace(400).endswith("ETA 10:00")
    reporter.resume(300)
    for _ in range(2):
        clock[0] += 4.0
        reporter.add(history())
    assert reporter._pace(304).endswith("ETA 23:12")


def test_an_unknown_peak_has_no_share(tmp_path):
    reporter = Reporter(str(tmp_path), 10, 8)
    reporter.add(history(flops=[(3e9, 1.0)] * 2))
    reporter.report(2)
    assert "flops_utilisation" not in lines(tmp_path)[0]


def test_batches_without_a_mask_have_no_token_figures(tmp_path):
    reporter = Reporter(str(tmp_path), 10, 8)
    values = history()
    del values["tokens"]
    reporter.add(values)
    reporter.report(2)
    assert not {"tokens_per_second", "padding_share"} & lines(tmp_path)[0].keys()


def test_skipped_updates_are_counted_and_spoil_no_mean(tmp_path, caplog):
    reporter = Reporter(str(tmp_path), 10, 8)
    skipped = {
        "loss": [(math.inf, 1.0), (3.0, 1.0), (-math.inf, 1.0)],
        "gradient_norm": [(0.0, 0.0), (7.0, 1.0), (0.0, 0.0)],
        "loss_scale": [(1024.0, 1.0), (512.0, 1.0), (512.0, 1.0)],
        "skipped_updates": [(1.0, 1.0), (0.0, 1.0), (1.0, 1.0)],
    }
    reporter.add(history(3, **skipped))
    with caplog.at_level("INFO"):
        reporter.report(3)
    reporter.add(history(1, **{name: pairs[:1] for name, pairs in skipped.items()}))
    reporter.report(4)
    some, all_skipped = lines(tmp_path)
    assert (some["loss"], some["gradient_norm"]) == (3.0, 7.0)
    assert (some["loss_scale"], some["skipped_updates"]) == (512.0, 2.0)
    assert "(2 of 3 updates skipped, loss scale 512)" in caplog.messages[0]
    assert not {"loss", "gradient_norm"} & all_skipped.keys()
    assert all_skipped["skipped_updates"] == 1.0


def test_values_that_are_not_finite_come_back(tmp_path):
    reporter = Reporter(str(tmp_path), 10, 8)
    reporter.write("eval", 1, {"accuracy": 0.5})
    reporter.write("eval", 2, {"accuracy": math.nan})
    assert lines(tmp_path)[1]["accuracy"] is None
    again = Reporter(str(tmp_path), 10, 8)
    for one in (reporter, again):
        (first, second) = one.curve("eval", "accuracy")
        assert first == (1, 0.5)
        assert second[0] == 2 and math.isnan(second[1])
    assert again.last("eval") == {"step": 2, "accuracy": None}
    assert again.last("train") == {}
    again.resume(1)
    assert len(lines(tmp_path)) == 1


def test_other_workers_are_silent(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(reporting, "is_chief", lambda: False)
    reporter = Reporter(str(tmp_path), 10, 8)
    with caplog.at_level("INFO"):
        reporter.resume(0)
        reporter.add(history())
        reporter.report(2)
        reporter.write("eval", 2, {"accuracy": 0.5})
        assert reporter.curve("eval", "accuracy") == [(2, 0.5)]
        reporter.plot("curves.png", {"Loss": ["loss"]})
        write_run_results(str(tmp_path), "eval_results.txt", {"accuracy": 0.5})
    assert not caplog.messages
    assert not list(tmp_path.iterdir())


def test_numbers_beyond_float32_are_written(tmp_path):
    """The perplexity of a run that diverges; TensorBoard has float32 alone."""
    reporter = Reporter(str(tmp_path), 10, 8)
    reporter.write("eval", 2, {"perplexity": 1e304})
    assert reporter.last("eval") == {"step": 2, "perplexity": 1e304}
    assert json.loads((tmp_path / "metrics.jsonl").read_text())["perplexity"] == 1e304


def test_plot_leaves_out_empty_panels(tmp_path):
    reporter = Reporter(str(tmp_path), 10, 8)
    for step in (1, 2):
        reporter.write("train", step, {"loss": 3.0 - step})
        reporter.write("eval", step, {"loss": math.nan, "perplexity": 100.0**step})
    widths = []
    for titles in (["loss", "perplexity", "accuracy"], ["loss"], ["accuracy"]):
        reporter.plot("curves.png", {title: [title] for title in titles})
        widths.append(matplotlib.image.imread(tmp_path / "curves.png").shape[1])
    assert widths[0] == pytest.approx(2 * widths[1], abs=2)
    assert widths[2] == widths[1]


def test_training_is_an_activity_until_it_is_closed(tmp_path):
    reporter = Reporter(str(tmp_path), 10, 8)
    before = list(logs._under_way)
    reporter.add(history())
    shown = logs._under_way[-1]
    assert logs._under_way == [*before, shown]
    assert shown.line().startswith("Training: 2 of 10 steps, 20%, loss 2.5000  lr 0.0002  ")
    reporter.close()
    reporter.close()
    assert logs._under_way == before
    reporter.add(history())  # it goes on
    assert "4 of 10 steps" in logs._under_way[-1].line()
    reporter.close()


def test_scores_of_an_earlier_file_are_named(tmp_path, caplog):
    (tmp_path / "test_results.txt").write_text("eval_f1 = 1\n")
    reporting.tell_of_earlier_results(str(tmp_path), ["none.txt"])
    assert not caplog.text
    reporting.tell_of_earlier_results(str(tmp_path), ["test_results.txt", "none.txt"])
    assert f"test_results.txt in {tmp_path}: of an earlier file, and not of these" in caplog.text
    assert "none.txt" not in caplog.text


def test_a_full_disk(tmp_path, monkeypatch):
    reporter = Reporter(str(tmp_path), 4, 8)
    full = tf.errors.ResourceExhaustedError(None, None, "metrics.jsonl; No space left on device")

    def write(*_):
        raise full

    monkeypatch.setattr(tf.io.gfile.GFile, "write", write)
    with pytest.raises(ModelingError, match=r"metrics\.jsonl: .*No space left.*newest checkpoint"):
        reporter.write("eval", 1, {"loss": 1.0})
