"""One writer at a time, across processes and hosts; what the dead left is removed."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
import tensorflow as tf

from data.errors import DataError
from data.files import atomic, lock_files, locks
from data.files.text_files import expand


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    """The same times, shorter."""
    for module, name, seconds in (
        (locks, "BEAT_SECONDS", 0.05),
        (locks, "SILENT_SECONDS", 0.6),
        (locks, "_LINGERING_SECONDS", 0.0),
        (lock_files, "_PAUSE_SECONDS", 0.05),
    ):
        monkeypatch.setattr(module, name, seconds)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def owned_by(path, **changes):
    """A lock file as another process would have left it."""
    owner = json.loads(lock_files.own_lock("a" * 16, "")) | changes
    path.touch()
    # As a sign of life is given: in place, so that nobody reads an empty file.
    with path.open("r+") as file:
        file.write(json.dumps(owner) + "\n")
        file.truncate()


def ended_process() -> int:
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
    return int(ended.stdout)


@pytest.mark.parametrize("remote", [False, True])
def test_a_second_writer_is_refused(tmp_path, remote):
    folder = "ram://locks/out" if remote else str(tmp_path / "new" / "out")
    with locks.one_writer({"output_dir": folder}):
        with pytest.raises(DataError) as refused, locks.one_writer({"output_dir": folder}):
            raise AssertionError("two writers")
        for said in (folder, f"process {os.getpid()} on ", "since 2", "another --output_dir"):
            assert said in str(refused.value)
    assert tf.io.gfile.listdir(folder) == []
    with locks.one_writer({"output_dir": folder}):
        pass


def test_files_of_one_set_share_a_lock(tmp_path):
    def paths(*names):
        return {"output_file": [f"{tmp_path}/{name}" for name in names]}

    with locks.one_writer(files=paths("a-00000-of-00002.x", "a-00001-of-00002.x", "b.x")):
        assert names(tmp_path) == [".a.x.lock", ".b.x.lock"]
        for other in (["a.x"], ["a-00001-of-00003.x"], ["c.x", "b.x"]):
            with pytest.raises(DataError, match="is being written"):
                locks.one_writer(files=paths(*other)).__enter__()
        with locks.one_writer(files=paths("c.x")):
            pass
    assert names(tmp_path) == []


def test_the_dead_of_this_machine_are_succeeded_at_once(tmp_path):
    for changes in ({"process": ended_process()}, {"started": "1"}, {"process": "x"}):
        owned_by(tmp_path / ".lock", **changes)
        with locks.one_writer({"output_dir": str(tmp_path)}):
            assert names(tmp_path) == [".lock"]
            assert json.loads((tmp_path / ".lock").read_text())["process"] == os.getpid()
        assert names(tmp_path) == []


def test_an_owner_on_another_machine_shows_that_it_lives(tmp_path):
    lock = tmp_path / ".lock"
    owned_by(lock, machine="another", host="far", beats="0" * 12)
    stop = threading.Event()

    def beat():
        number = 0
        while not stop.wait(0.05):
            number += 1
            owned_by(lock, machine="another", host="far", beats=f"{number:012d}")

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        with pytest.raises(DataError, match=" on far, since "):
            locks.one_writer({"output_dir": str(tmp_path)}).__enter__()
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("content", [None, b"", b"\xff\x00", b"[1]", b'{"token": 5}', b"[" * 9999])
def test_a_silent_lock_is_taken_over_after_a_while(tmp_path, content):
    lock = tmp_path / ".lock"
    if content is None:
        owned_by(lock, machine="another")
    else:
        lock.write_bytes(content)
    begin = time.monotonic()
    with locks.one_writer({"output_dir": str(tmp_path)}):
        assert time.monotonic() - begin > 0.5
        assert names(tmp_path) == [".lock"]


def test_a_claim_of_a_dead_successor_is_no_obstacle(tmp_path):
    dead = ended_process()
    owned_by(tmp_path / ".lock", process=dead)
    owned_by(tmp_path / f".lock.{'a' * 16}", process=dead, token="b" * 16)
    owned_by(tmp_path / f".lock.{'c' * 16}", process=dead, token="d" * 16)
    with locks.one_writer({"output_dir": str(tmp_path)}):
        assert names(tmp_path) == [".lock"]


def test_an_owner_gives_signs_of_life(tmp_path):
    with locks.one_writer({"output_dir": str(tmp_path)}):
        before = (tmp_path / ".lock").read_bytes()
        time.sleep(0.3)
        after = (tmp_path / ".lock").read_bytes()
        assert before != after and len(before) == len(after)
        (tmp_path / ".lock").unlink()  # by a user who means well
        time.sleep(0.3)
        assert json.loads((tmp_path / ".lock").read_text())["token"] in before.decode()


def in_fork(function) -> int:
    """Process that ends with what a function returns; 1 if it raises."""
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        status = function()
    finally:
        os._exit(status)


def status_of(process: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def wait_for(path):
    while not path.exists():
        time.sleep(0.01)


def test_an_owner_that_was_succeeded_ends(tmp_path):
    def hold():
        os.dup2(os.open(tmp_path / "said", os.O_CREAT | os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w")
        with locks.one_writer({"output_dir": str(tmp_path)}):
            (tmp_path / "held").touch()
            time.sleep(60)
        return 0

    process = in_fork(hold)
    wait_for(tmp_path / "held")
    owned_by(tmp_path / ".lock")
    assert status_of(process) == 1
    said = (tmp_path / "said").read_text()
    assert f"Error: {tmp_path} was taken over by another run" in said
    assert json.loads((tmp_path / ".lock").read_text())["token"] == "a" * 16


def test_workers_of_one_run_are_let_in(tmp_path):
    folder = {"output_dir": str(tmp_path)}
    with (
        locks.one_writer(folder, team=("a:1 b:1", 0)),
        locks.one_writer(folder, team=("a:1 b:1", 1)),
    ):
        for other in (("", 0), ("a:1 c:1", 1), ("a:1 b:1", 0)):
            with pytest.raises(DataError, match="is being written"):
                locks.one_writer(folder, team=other).__enter__()
    with locks.one_writer(folder, team=("a:1 b:1", 1)):
        assert names(tmp_path) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"folder .*/file/x can't be written.*--output_dir"):
        locks.one_writer({"output_dir": f"{tmp_path}/file/x"}).__enter__()
    with pytest.raises(DataError, match=r"/file/x can't be written"):
        locks.one_writer(files={"output_file": [f"{tmp_path}/file/x"]}).__enter__()


def test_what_the_dead_of_all_hosts_left_goes(tmp_path):
    left = ["a.far-1-0123456789ab.partial", "deep/er/b.far-1-0123456789ab.partial"]
    left += [".saving-far.x-1-0123456789ab/c", "runs/.saving-far-1-0123456789ab/c"]
    kept = ["a.partial", "deep/d", "1/e.far-1-0123456789ab.partial"]
    kept += ["another/.lock", "another/f.far-1-0123456789ab.partial"]
    for name in left + kept:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    owned_by(tmp_path / "another" / ".lock", machine="another")
    with locks.one_writer({"output_dir": str(tmp_path)}):
        assert not any((tmp_path / name).exists() for name in left)
        assert all((tmp_path / name).exists() for name in kept)
    with locks.one_writer(files={"f": [f"{tmp_path}/another/f", f"{tmp_path}/another/g"]}):
        assert names(tmp_path / "another") == [".f.lock", ".g.lock", ".lock"]


def test_what_a_live_neighbour_writes_stays(tmp_path):
    """Its name may begin as ours does; what has no lock of its own is ours."""
    ours, other = str(tmp_path / "answers.jsonl"), str(tmp_path / "answers.jsonl.gz")
    with (
        locks.one_writer(files={"output_file": [other]}),
        atomic.writing(other) as file,
    ):
        file.write(b"half")
        (half,) = (name for name in names(tmp_path) if name.endswith(".partial"))
        (tmp_path / half.replace(".gz.", ".manifest.json.")).touch()
        with locks.one_writer(files={"output_file": [ours]}):
            assert [name for name in names(tmp_path) if ".partial" in name] == [half]
    assert (tmp_path / "answers.jsonl.gz").read_bytes() == b"half"


def test_patterns_find_no_locks_and_nothing_half_written(tmp_path):
    with locks.one_writer({"o": str(tmp_path)}, {"f": [f"{tmp_path}/a"]}):
        for name in ("a", "b"):
            (tmp_path / name).touch()
        with atomic.replacing(f"{tmp_path}/b") as temporary:
            open(temporary, "w").close()
            assert len(names(tmp_path)) == 5
            assert expand(f"{tmp_path}/*") == [f"{tmp_path}/a", f"{tmp_path}/b"]


def is_alive(process: int) -> bool:
    return bool(lock_files._start_of(process))


def work_alone(folder, draw) -> int:
    """0 for work without another writer, 3 for a refusal, 9 for two at once."""
    busy = folder / "busy"
    try:
        with locks.one_writer({"output_dir": str(folder)}):
            if busy.exists() and is_alive(int(busy.read_text() or "0")):
                return 9
            busy.write_text(str(os.getpid()))
            time.sleep(draw.uniform(0, 0.01))
            if busy.read_text() != str(os.getpid()):
                return 9
            busy.write_text("")
    except DataError:
        return 3
    return 0


def contend(folder, number: int) -> int:
    """Starts writers one after another, and kills some of them; 9 if one wasn't alone."""
    draw, ends = random.Random(number), set()
    for _ in range(25):
        process = in_fork(lambda: work_alone(folder, draw))
        if draw.random() < 0.3:
            time.sleep(draw.uniform(0, 0.02))
            os.kill(process, signal.SIGKILL)
        ends.add(status_of(process))
    return 0 if ends <= {0, 3, -signal.SIGKILL} else 9


def test_many_contenders_some_of_which_are_killed(tmp_path):
    contenders = [in_fork(lambda number=number: contend(tmp_path, number)) for number in range(3)]
    assert [status_of(process) for process in contenders] == [0, 0, 0]
    with locks.one_writer({"output_dir": str(tmp_path)}):
        assert set(names(tmp_path)) <= {".lock", "busy"}


def test_a_killed_owner_is_succeeded(tmp_path):
    def hold():
        with locks.one_writer({"output_dir": str(tmp_path)}):
            (tmp_path / "held").touch()
            time.sleep(60)
        return 0

    process = in_fork(hold)
    wait_for(tmp_path / "held")
    with pytest.raises(DataError, match=f"process {process} on "):
        locks.one_writer({"output_dir": str(tmp_path)}).__enter__()
    os.kill(process, signal.SIGKILL)
    # Its number isn't given back before it has been asked for its end: it is dead none the less.
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
    with locks.one_writer({"output_dir": str(tmp_path)}):
        pass
    assert status_of(process) == -signal.SIGKILL


def test_one_folder_in_two_spellings(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path)
    spellings = [f"{tmp_path}/a", f"{tmp_path}/link/a/", f"{tmp_path}/./a"]
    with locks.one_writer(dict(zip("abc", spellings, strict=True))):
        assert names(tmp_path / "a") == [lock_files.NAME]
        for folder in spellings:
            with pytest.raises(DataError, match="being written"), locks.one_writer({"d": folder}):
                pass
    assert names(tmp_path / "a") == []
