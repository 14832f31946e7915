"""Files that are there whole or not at all."""

import os
import re
import resource
import subprocess
import sys

import pytest
import tensorflow as tf

from data.errors import DataError
from data.files import atomic, locks


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_when_it_is_complete(tmp_path):
    path = tmp_path / "a"
    path.write_text("before")
    with atomic.writing(str(path)) as file:
        file.write(b"x")
        file.flush()
        assert path.read_text() == "before" and len(names(tmp_path)) == 2
    assert path.read_bytes() == b"x" and names(tmp_path) == ["a"]
    atomic.write_text(str(path), "ä\n")
    assert path.read_bytes() == "ä\n".encode()
    with atomic.writing(str(path)):
        pass
    assert path.read_bytes() == b""


def test_an_interruption_leaves_nothing(tmp_path):
    for place in (str(tmp_path / "a"), "ram://atomic/a"):
        with pytest.raises(KeyboardInterrupt), atomic.writing(place, "w") as file:
            file.write("x")
            raise KeyboardInterrupt
        assert not tf.io.gfile.exists(place)
    assert names(tmp_path) == [] and tf.io.gfile.glob("ram://atomic/*") == []


def test_a_full_disk(tmp_path):
    """A limit of a file's size fails as a full disk does, in the middle of writing."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with pytest.raises(DataError, match=rf"{tmp_path}/a can't be written: .*room enough"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
        try:
            atomic.write_text(str(tmp_path / "a"), "x" * 1_000_000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert names(tmp_path) == []


def test_other_file_systems():
    atomic.write_text("ram://other/a", "x")
    with tf.io.gfile.GFile("ram://other/a") as file:
        assert file.read() == "x"
    assert tf.io.gfile.listdir("ram://other") == ["a"]


def test_a_place_is_tried_before_the_work(tmp_path):
    (tmp_path / "a").write_text("before")
    atomic.check_writable(str(tmp_path / "a"))
    assert (tmp_path / "a").read_text() == "before" and names(tmp_path) == ["a"]
    with pytest.raises(DataError, match=r"a/b can't be written: "):
        atomic.check_writable(str(tmp_path / "a" / "b"))


def test_names_tell_host_and_process_and_are_never_the_same(tmp_path):
    path = str(tmp_path / "a")
    with atomic.replacing(path) as one, atomic.replacing(path) as other:
        for temporary in (one, other):
            (tmp_path / os.path.basename(temporary)).touch()
        assert one != other
        assert re.fullmatch(rf"{path}\.\w+-{os.getpid()}-[0-9a-f]+\.partial", one)


def test_leftovers_of_dead_processes_of_this_host_go(tmp_path):
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], stdout=-1)
    with atomic.replacing(str(tmp_path / "a")) as temporary:
        mine = os.path.basename(temporary)
        dead = mine.replace(f"-{os.getpid()}-", f"-{int(ended.stdout)}-")
        other_host = dead.replace("a.", "a.other", 1)
        for name in (mine, dead, other_host, "a.partial", "b"):
            (tmp_path / name).touch()
        atomic.remove_leftovers(str(tmp_path))
        assert names(tmp_path) == sorted([mine, other_host, "a.partial", "b"])


def test_devices_and_pipes_are_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link", "/dev/null", "/dev/stdout"):
        with pytest.raises(DataError, match=f"{path} is a device, a pipe"):
            atomic.write_text(str(path), "")
        with (
            pytest.raises(DataError, match=f"{path} is a device, a pipe"),
            locks.one_writer(files={"output_file": [str(path)]}),
        ):
            pass
    assert pipe.is_fifo() and names(tmp_path) == ["link", "pipe"]


def test_a_folder_is_told_before_the_work(tmp_path):
    with pytest.raises(DataError, match=f"{tmp_path} is a folder, where a file is to be written"):
        atomic.check_writable(str(tmp_path))
    assert names(tmp_path) == []
