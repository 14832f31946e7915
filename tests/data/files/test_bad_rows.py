"""Bad rows: twenty in one message, or left out, but never more than half of a file."""

import pytest

from data.errors import DataError
from data.files.bad_rows import MOST_BAD_ROWS_TOLD, BadRows, first_bad_row_raises


def fail(message):
    raise DataError(message)


def read(rows, bad_rows, path="f.tsv"):
    """`rows` are messages of bad rows, or None for good ones."""
    file = bad_rows.of(path)
    good = [file.attempt(fail, row) if row else file.attempt(int, "7") for row in rows]
    good = [row for row in good if row is not None]
    file.finish(len(good))
    return good


def message(rows, skip=False):
    with pytest.raises(DataError) as error:
        read(rows, BadRows(skip))
    return str(error.value)


def test_one_message_for_all():
    good = [None] * 10
    told = message([*good, "f.tsv:3: it is empty. Fill it.", "f.tsv:5: it is empty. Fill it."])
    assert told == (
        "f.tsv:3: it is empty. Fill it. The same at f.tsv:5. That makes 2 of 12 rows of f.tsv "
        "which can't be used; with --skip_bad_rows they are left out."
    )
    told = message(["f.tsv:3: it is odd.", *good, "f.tsv: row 4: " + "x" * 500, *good])
    assert told.startswith("f.tsv:3: it is odd. f.tsv: row 4: xxx")
    assert "x…" in told and len(told) < 500
    rows = [f"f.tsv:{number}: bad." for number in range(1, 31)]
    told = message(rows + good * 4)
    assert (
        f"f.tsv:{MOST_BAD_ROWS_TOLD}. And 10 more." in told
        and f":{MOST_BAD_ROWS_TOLD + 1}" not in told
    )
    # SQuAD's places have a colon inside.
    told = message([f"f.tsv: data[0].qas[{n}]: the question is empty." for n in (1, 2)] + good)
    assert told.startswith("f.tsv: data[0].qas[1]: the question is empty. The same at f.tsv: data")


def test_left_out_and_counted(caplog):
    bad_rows = BadRows(skip=True)
    assert read([None, "f.tsv:2: bad.", None], bad_rows) == [7, 7]
    assert read([None], bad_rows, "g.tsv") == [7]
    assert bad_rows.skipped == {"f.tsv": 1}
    assert "Left out 1 of 3 rows of f.tsv" in caplog.text and "f.tsv:2: bad." in caplog.text


def test_at_most_half():
    assert read([None, "f.tsv:2: bad."], BadRows(skip=True)) == [7]
    told = message([None, "f.tsv:2: bad.", "f.tsv:3: bad."], skip=True)
    assert "2 of 3 rows" in told and "half at most" in told


def test_at_once():
    assert first_bad_row_raises(int, "7") == 7
    with pytest.raises(DataError, match="now"):
        first_bad_row_raises(fail, "now")


def test_what_is_wrong_with_all_rows_is_said_once():
    rows = [f"f.tsv:{number}: there is no column 'a'." for number in range(2, 52)]
    assert message(rows) == (
        "f.tsv:2: there is no column 'a'. So it is with all 50 rows of f.tsv: check that it is the "
        "right file, and what the flags say of it."
    )
    for place in (3, 40):
        other = [*rows[:place], "f.tsv:99: it is odd.", *rows[place:]]
        assert "That makes 51 of 51 rows" in message(other)
    assert message(rows[:1]).startswith("f.tsv:2: there is no column 'a'. That makes 1 of 1 rows")
