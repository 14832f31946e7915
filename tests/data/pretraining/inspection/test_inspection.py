"""Looking through records: numbers against plain counting, every damage found."""

import math
from collections import Counter

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf
from matplotlib import image

from data.errors import DataError
from data.pretraining.inspection import inspection, record_text, reports
from data.pretraining.inspection.statistics import Statistics, _binomial_interval
from tests.data.pretraining.inspection.made_records import (
    CLS,
    HOUSE,
    MASK,
    SEP,
    SHOWN,
    THE,
    TREE,
    UNK,
    VOCAB,
    example,
    features,
    random_features,
    write,
)

SPECIALS = inspection.InspectedTokens.from_tokens(VOCAB)


def plain_count(files):
    """The numbers by loops over protocol buffers."""
    counts, lists, labels = Counter(), {}, Counter()
    for path in files:
        compression = "GZIP" if path.endswith(".gz") else ""
        for record in tf.data.TFRecordDataset(path, compression).as_numpy_iterator():
            parsed = tf.train.Example.FromString(record).features.feature
            ints = {k: list(v.int64_list.value) for k, v in parsed.items()}
            length, width = sum(ints["input_mask"]), len(ints["input_ids"])
            b = sum(ints["segment_ids"])
            counts["records"] += 1
            counts["tokens"] += length
            counts["places"] += width
            counts["full"] += length == width
            counts["short"] += length < width / 2
            counts["pairs"] += b > 0
            counts["random"] += ints["next_sentence_labels"][0]
            counts[f"S{width}"] += 1
            lists.setdefault("length", []).append(length)
            lists.setdefault("a", []).append(length - b - 2)
            if b:
                lists.setdefault("b", []).append(b - 1)
            if "masked_lm_ids" not in parsed:
                continue
            used = 0
            for at, label, weight in zip(
                ints["masked_lm_positions"],
                ints["masked_lm_ids"],
                parsed["masked_lm_weights"].float_list.value,
                strict=True,
            ):
                if weight:
                    used += 1
                    stands = ints["input_ids"][at]
                    counts[
                        "mask" if stands == MASK else "kept" if stands == label else "drawn"
                    ] += 1
                    labels[label] += 1
            counts["masked_records"] += 1
            counts["masked_tokens"] += length
            counts["masked_text"] += length - 2 - (b > 0)
            lists.setdefault("predictions", []).append(used)
    return counts, lists, labels


def same_distribution(found, values):
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["std"] == pytest.approx(np.std(values))
    assert (found["min"], found["max"]) == (min(values), max(values))
    assert found["median"] == np.quantile(values, 0.5, method="inverted_cdf")
    assert found["histogram"] == {str(k): v for k, v in sorted(Counter(values).items())}


@pytest.fixture(scope="module")
def random_files(tmp_path_factory):
    """Two of 16 places, one compressed of 24, one of records that aren't masked."""
    folder, rng = tmp_path_factory.mktemp("records"), np.random.default_rng(5)
    return [
        write(folder / "a", [random_features(rng) for _ in range(1100)]),
        write(folder / "b", [random_features(rng) for _ in range(3)]),
        write(folder / "c.gz", [random_features(rng, 24, 6) for _ in range(520)], "GZIP"),
        write(folder / "d", [random_features(rng, masked=False) for _ in range(50)]),
    ]


def test_statistics(random_files):
    counts, lists, labels = plain_count(random_files)
    found = inspection.inspect_record_files(random_files, SPECIALS)
    assert (found.records, found.damaged, found.complete) == (counts["records"], 0, True)
    summary = found.statistics.summary()
    for name in ("records", "masked_records", "tokens"):
        assert summary[name] == counts[name]
    assert (
        summary["max_seq_length"]
        == {"16": counts["S16"], "24": counts["S24"]}
        == {
            "16": 1153,
            "24": 520,
        }
    )
    assert summary["max_predictions_per_seq"] == {"4": 1103, "6": 520}
    predictions = sum(lists["predictions"])
    assert summary["predictions"] == predictions > 2000
    assert summary["masked_share"] == predictions / counts["masked_tokens"]
    assert summary["masked_share_of_text"] == predictions / counts["masked_text"]
    assert summary["padding_share"] == pytest.approx(1 - counts["tokens"] / counts["places"])
    assert summary["full_length_share"] == counts["full"] / counts["records"] > 0
    assert summary["short_share"] == counts["short"] / counts["records"] > 0
    pairs = summary["next_sentence"]
    assert pairs["records_with_second_segment"] == counts["pairs"]
    assert pairs["random"]["share"] == counts["random"] / counts["pairs"]
    replaced = summary["replaced"]
    assert replaced["mask"]["count"] == counts["mask"]
    assert replaced["random"]["count"] == replaced["seen_as_random"] == counts["drawn"]
    assert replaced["kept"]["count"] == replaced["seen_as_kept"] == counts["kept"]
    same_distribution(summary["length"], lists["length"])
    same_distribution(summary["segment_a_length"], lists["a"])
    same_distribution(summary["segment_b_length"], lists["b"])
    same_distribution(summary["predictions_per_record"], lists["predictions"])
    best = [(entry["id"], entry["count"]) for entry in summary["most_predicted"]]
    assert best == sorted(labels.items(), key=lambda item: (-item[1], item[0]))[:10]
    shares = found.statistics.padding_shares
    assert shares.total == counts["records"] and found.statistics.masked_shares.total == 1623

    concluded = inspection.inspect_record_files(random_files).statistics.summary()
    assert concluded["replaced"].pop("mask_id_is_concluded")
    assert not summary["replaced"].pop("mask_id_is_concluded")
    assert concluded == summary


def test_limit(random_files):
    for limit, files in ((0, []), (700, random_files[:1]), (1105, random_files[:3])):
        found = inspection.inspect_record_files(random_files, max_records=limit)
        assert found.records == found.statistics.records == limit and not found.complete
        if limit == 700:
            counts = plain_count(files)[1]["length"][:700]
            assert found.statistics.lengths.sum == sum(counts)


@pytest.mark.parametrize(("count", "total"), [(0, 10), (10, 10), (3, 7), (80_123, 100_000)])
def test_interval(count, total):
    oracle = scipy.stats.binomtest(count, total).proportion_ci(0.99, "wilson")
    assert _binomial_interval(count, total) == pytest.approx((oracle.low, oracle.high), abs=1e-12)


def test_draws_that_hit_the_piece_itself_are_made_up_for():
    """Of 10 pieces one in ten draws is the piece itself: 9 seen are 10 drawn."""
    statistics = Statistics(MASK)
    stands = [MASK] * 80 + [HOUSE] * 9 + [TREE] * 11
    for piece in stands:
        made = features([piece, THE], [THE], 0, [(1, TREE)])
        statistics.add({k: np.array([v]) for k, v in made.items()})
    replaced = statistics.summary(replacements=10)["replaced"]
    assert [replaced[name]["count"] for name in ("mask", "random", "kept")] == [80, 10, 10]
    assert (replaced["seen_as_random"], replaced["seen_as_kept"]) == (9, 11)
    assert replaced["mask"]["low"] < 0.8 < replaced["mask"]["high"]


def changed(name, value, at=None):
    made = {k: list(v) for k, v in SHOWN.items()}
    if at is None:
        made[name] = value
    else:
        made[name][at] = value
    return made


DAMAGE = {
    "input_mask that isn't": changed("input_mask", 0, 3),
    "input_mask that isn't ones": changed("input_mask", 2, 0),
    "ids other than 0 in the padding": changed("input_ids", 7, 15),
    "segment_ids that aren't": changed("segment_ids", 0, 9),
    "segment_ids that aren't zeros": changed("segment_ids", 1, 14),
    "no first segment": changed("segment_ids", [1] * 13 + [0] * 3),
    "label other than 0 and 1": changed("next_sentence_labels", [2]),
    "but no second segment": features([THE], None, 1),
    "weights other than 0 and 1": changed("masked_lm_weights", 0.5, 1),
    "weights other than 0": changed("masked_lm_weights", math.nan, 3),
    "weights that aren't ones, then zeros": changed("masked_lm_weights", 0.0, 1),
    "outside of the sequence": changed("masked_lm_positions", 14, 3),
    "positions outside of the sequence": changed("masked_lm_positions", -1, 0),
    "on [CLS] or [SEP]": changed("masked_lm_positions", 0, 0),
    "positions on [CLS] or [SEP]": changed("masked_lm_positions", 6, 1),
    "masked_lm_positions on [CLS] or [SEP]": changed("masked_lm_positions", 12, 3),
    "don't ascend": changed("masked_lm_positions", 5, 0),
    "that don't ascend": changed("masked_lm_positions", 9, 0),
    "the value -3 in masked_lm_ids": changed("masked_lm_ids", -3, 2),
    "value 99999999999 in input_ids": changed("input_ids", 99999999999, 2),
    "lacks the feature input_mask": {k: v for k, v in SHOWN.items() if k != "input_mask"},
    "lacks the feature masked_lm_ids": {k: v for k, v in SHOWN.items() if k != "masked_lm_ids"},
    "15 values of input_mask, but 16": changed("input_mask", [1] * 15),
    "2 values of next_sentence_labels": changed("next_sentence_labels", [0, 0]),
    "isn't a tf.train.Example": b"\x0a\xff\xff",
    "24 pieces and 4 predictions, but the file begins with 16": features([THE], [THE], s=24),
    "16 pieces and no masked_lm": features([THE], [THE], predictions=None),
}
ONLY_WITH_VOCABULARY = {
    "value 53 in masked_lm_ids, but the vocabulary has 53": changed("masked_lm_ids", 53, 0),
    "special piece among the masked_lm_ids": changed("masked_lm_ids", MASK, 0),
    "doesn't begin with [CLS]": changed("input_ids", THE, 0),
    "doesn't end with [SEP]": changed("input_ids", THE, 6),
    "that doesn't end with [SEP]": changed("input_ids", CLS, 12),
}


@pytest.mark.parametrize("specials", [None, SPECIALS], ids=["ids", "vocabulary"])
def test_damaged_records(tmp_path, specials):
    """Each is named, in the midst of batches of sound ones, and counts nowhere else."""
    damage = DAMAGE | (ONLY_WITH_VOCABULARY if specials else {})
    records, places = [], []
    for made in damage.values():
        records += [SHOWN] * 53
        places.append(len(records))
        records.append(made)
    path = write(tmp_path / "damaged", records)
    found = inspection.inspect_record_files([path], specials)
    assert [p.record for p in found.problems] == places
    for problem, expected in zip(found.problems, damage, strict=True):
        assert problem.file == path and expected in problem.text, (expected, problem)
    assert found.records == len(records) and found.damaged == len(damage)
    assert found.statistics.records == len(records) - len(damage)
    assert found.statistics.predictions.sum == 4 * found.statistics.records
    with pytest.raises(DataError, match=rf"{len(damage)} records are damaged of .* record 53 "):
        found.check()


def test_unusual_records_that_are_sound(tmp_path):
    """What the original makes too: no prediction at all, [UNK] predicted, [CLS] as random piece."""
    records = [
        features([THE], [THE]),
        features([MASK, THE], [THE], 0, [(1, UNK)]),
        features([CLS, THE], [SEP], 0, [(1, THE), (4, THE)]),
    ]
    found = inspection.inspect_record_files([write(tmp_path / "a", records)], SPECIALS)
    assert found.problems == [] and found.statistics.predictions.sum == 3


def test_many_problems_are_counted_but_not_kept(tmp_path):
    path = write(tmp_path / "a", [changed("input_mask", 0, 3)] * 700)
    found = inspection.inspect_record_files([path])
    assert (found.damaged, len(found.problems)) == (700, inspection.KEPT_PROBLEMS)
    report = reports.text_report(reports.summarize_inspection(found))
    assert "700 of them damaged" in report and "… and 680 more damaged records" in report
    with pytest.raises(DataError, match="nothing to draw"):
        reports.write_inspection_png(found, str(tmp_path / "a.png"))


@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_damaged_files(tmp_path, compression):
    """The bytes: counted up to the damage, and the other files are read all the same."""
    rng = np.random.default_rng(1)
    records = [example(random_features(rng)) for _ in range(600)]
    good = write(tmp_path / "good", records[:9])
    path = tmp_path / "bad"
    data = open(write(path, records, compression), "rb").read()  # noqa: SIM115
    for cut in (60, 2, 59, 37):
        path.write_bytes(data[: len(data) * 9 // 10 - cut])
        found = inspection.inspect_record_files([str(path), good])
        assert found.damaged == 1 and not found.complete
        problem = found.problems[0]
        assert 500 < problem.record < 600 and "truncated" in problem.text
        assert not problem.text.startswith(str(path))
        assert found.statistics.records == problem.record + 9
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 0xFF
    path.write_bytes(damaged)
    found = inspection.inspect_record_files([str(path), good])
    assert found.damaged == 1 and "corrupt" in found.problems[0].text
    assert found.statistics.records == found.problems[0].record + 9
    shown = list(record_text.show_records([str(path), good], VOCAB, count=605))
    assert len(shown) == found.problems[0].record + 1 + 9
    assert "corrupt" in shown[found.problems[0].record]


def test_foreign_files(tmp_path):
    text = tmp_path / "vocab.txt"
    text.write_text("\n".join(VOCAB))
    empty = write(tmp_path / "empty", [])
    found = inspection.inspect_record_files([str(text), empty])
    assert found.damaged == 1 and "isn't a TFRecord file" in found.problems[0].text
    report = reports.text_report(reports.summarize_inspection(found))
    assert "2 files, 1 record looked at, 1 of them damaged" in report
    assert inspection.inspect_record_files([empty]).complete
    with pytest.raises(DataError, match="isn't a file"):
        inspection.inspect_record_files([str(tmp_path / "absent")])


def test_report(random_files):
    summary = reports.summarize_inspection(
        inspection.inspect_record_files(random_files, SPECIALS), VOCAB, SPECIALS.replacements
    )
    report = reports.text_report(summary)
    assert report.startswith("4 files, 1,673 records\n")
    assert f"{summary['predictions']:,}, " in report and "16 (1,153 records), 24 (520" in report
    assert f"{100 * summary['replaced']['mask']['share']:.2f} %  (99 %: " in report
    assert "word" in report and "1 in 47 draws" in report
    bars = [line.split() for line in report.splitlines() if "–" in line and "█" in line]
    assert sum(int(bar[1].replace(",", "")) for bar in bars) == 1673
    assert max(len(bar[2]) for bar in bars) == 40
    concluded = reports.text_report(
        reports.summarize_inspection(inspection.inspect_record_files(random_files))
    )
    assert f"taken to be id {MASK}" in concluded and "id 1" in concluded
    unmasked = inspection.inspect_record_files(random_files[3:])
    assert "not masked" in reports.text_report(reports.summarize_inspection(unmasked))


def panels(path, rows):
    """The dark share of each panel."""
    pixels = image.imread(path)[..., :3]
    height, width = pixels.shape[0] // rows, pixels.shape[1] // 2
    return [
        (pixels[i * height : (i + 1) * height, j * width : (j + 1) * width].min(2) < 0.5).mean()
        for i in range(rows)
        for j in range(2)
    ]


def test_picture(random_files, tmp_path):
    path = str(tmp_path / "a.png")
    reports.write_inspection_png(inspection.inspect_record_files(random_files), path)
    assert min(panels(path, 2)) > 0.03
    first = open(path, "rb").read()  # noqa: SIM115
    reports.write_inspection_png(inspection.inspect_record_files(random_files), path)
    assert open(path, "rb").read() == first  # noqa: SIM115
    reports.write_inspection_png(inspection.inspect_record_files(random_files[3:]), path)
    assert min(panels(path, 1)) > 0.03
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


def test_files_that_cannot_be_written(tmp_path):
    existing = tmp_path / "a"
    existing.write_text("x")
    for paths in (
        [str(tmp_path / "absent/a.png")],
        [str(existing)],
        [str(tmp_path / "b"), None, str(tmp_path / "b")],
    ):
        with pytest.raises(DataError):
            reports.check_writable(paths, [str(existing)])
    reports.check_writable([None, str(tmp_path / "c")], [str(existing)])
    assert [file.name for file in tmp_path.iterdir()] == ["a"] and existing.read_text() == "x"


def test_masks_in_a_file_that_begins_without(tmp_path):
    records = [features([THE], [THE], predictions=None)] * 3 + [SHOWN]
    found = inspection.inspect_record_files([write(tmp_path / "a", records)])
    assert [problem.record for problem in found.problems] == [3]
    assert "and 4 predictions, but the file begins with 16 pieces and no" in found.problems[0].text


def test_every_cut_is_noticed(tmp_path):
    """Wherever a file of three records ends early, but between two of them where that can't be."""
    records = [example(SHOWN)] * 3
    for compression in ("", "GZIP"):
        path = tmp_path / "a"
        data = open(write(path, records, compression), "rb").read()  # noqa: SIM115
        size = len(data) // 3
        cuts = range(1, len(data), 5) if compression else [1, 11, 12, 13, size - 1, size + 5]
        for cut in cuts:
            path.write_bytes(data[:cut])
            found = inspection.inspect_record_files([str(path)])
            assert found.damaged == 1 and not found.complete, (compression, cut)
    path.write_bytes(data * 2)  # two members, as `cat` makes them
    found = inspection.inspect_record_files([str(path)])
    assert (found.damaged, found.statistics.records) == (0, 6)
