"""One writer at a time for a folder, or for a set of files: across processes and hosts.

    with locks.one_writer({"output_dir": folder}):
        …
    with locks.one_writer(files={"output_file": paths}):
        …

Who writes stands in a lock file: FOLDER/.lock, or .NAME.lock beside a file. Its owner gives a sign
of life every few seconds. A second writer is refused as soon as it is sure that the first one is
alive. What a dead owner left is taken over: at once if it ran on this machine, else after a minute
without a sign of life. That minute is measured by the one who waits; the clocks of two hosts are
never compared. An owner that stood still for longer (a suspended machine) and then finds another
one in its place ends at once.

On local and shared file systems the lock file comes into being by a hard link, which only one
process can make. Object stores (gs://, s3://) have nothing of that kind: there a writer writes its
own lock, pauses, and goes on if it reads that back. Two that start at the same moment are told
apart as long as each one's writing takes less than the pause.
"""

import contextlib
import os
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from data.errors import DataError
from data.files import atomic, leftovers, lock_files
from data.files.inputs_survive import check_inputs_survive, input_files
from data.files.lock_files import (
    NAME,
    READ_ERRORS,
    create_lock,
    is_owner_alive,
    lock_owner,
    owner_in_words,
    read_lock,
    replace_lock,
    rewrite_lock,
)

BEAT_SECONDS = 5.0
"""From one sign of life to the next."""

SILENT_SECONDS = 60.0
"""An owner on another machine that gives none for so long counts as dead."""

# Helpers of a killed process live on for a moment, see `pretraining.writing.local`.
_LINGERING_SECONDS = 1.0
_WAIT_SECONDS = 0.1
_SHARD = re.compile(r"-\d{5}-of-\d{5}(?=(\.\w+)?$)")


@contextlib.contextmanager
def one_writer(
    folders: Mapping[str, str | None] | None = None,
    files: Mapping[str, Sequence[str | None]] | None = None,
    team: tuple[str, int] = ("", 0),
) -> Iterator[None]:
    """Within it no other process writes there; temporary files that dead ones left there are gone.

    Args:
        folders: Flag → output folder, made if absent. None and "" are passed over.
        files: Flag → output files, of which the shards of one name share a lock. Folders they lie
            in are made if absent.
        team: Name of the run and number of this process in it. Of several processes that write
            together (workers on several hosts) number 0 holds the lock; the others, which tell the
            same name, are let in.

    Raises:
        DataError: Another process writes there, or a lock can't be written.
    """
    places = {}
    for flag, folder in (folders or {}).items():
        if folder:
            places[os.path.join(_one_spelling(folder), NAME)] = (flag, folder)
    for flag, paths in (files or {}).items():
        for path in filter(None, paths):
            atomic.refuse_special_file(path)
            head, name = os.path.split(_SHARD.sub("", path))
            places[os.path.join(_one_spelling(head), f".{name}{NAME}")] = (flag, path)
    folders = [_one_spelling(folder) for folder in (folders or {}).values() if folder]
    written = [
        os.path.join(_one_spelling(os.path.dirname(path)), os.path.basename(path))
        for paths in (files or {}).values()
        for path in paths
        if path
    ]
    with contextlib.ExitStack() as stack:
        locks = []
        for path in sorted(places):
            lock = _Lock(path, *places[path], team)
            lock.acquire()
            stack.callback(lock.release)
            locks.append(lock)
        if team[1] == 0:
            held = {lock.path: lock.token for lock in locks}
            for folder in folders:
                leftovers.remove_in_folder(folder, held)
            leftovers.remove_of_files(written, held)
            ended = threading.Event()
            beat = threading.Thread(target=_keep_alive, args=(locks, ended), daemon=True)
            beat.start()
            stack.callback(beat.join)
            stack.callback(ended.set)
        yield


def _one_spelling(folder: str) -> str:
    """Of a folder that two flags may name in two ways."""
    return folder if "://" in folder else os.path.realpath(folder)


@contextlib.contextmanager
def one_run(
    values,
    folders: Mapping[str, str | None],
    replaced: Mapping[str, Sequence[str]],
    team: tuple[str, int],
) -> Iterator[None]:
    """`one_writer` for a script, which mustn't replace what it reads either.

    Args:
        values: The flag values, see `input_files`.
        folders, team: See `one_writer`.
        replaced: Flag → files of earlier runs in these folders, which may be replaced.
    """
    check_inputs_survive(input_files(values), replaced)
    with one_writer(folders, team=team):
        yield


class _Lock:
    """One lock file.

    Args:
        path: Of the lock file.
        flag: That names what is written.
        subject: What is written.
        team: See `one_writer`.
    """

    def __init__(self, path: str, flag: str, subject: str, team: tuple[str, int] = ("", 0)):
        self.path, self.flag, self.subject, self.team = path, flag, subject, team
        self.token = secrets.token_hex(8)
        self._beats = 0

    def _bytes(self) -> bytes:
        return lock_files.own_lock(self.token, self.team[0], self._beats)

    def acquire(self) -> None:
        """Waits for a dead owner's end to be certain; refuses where the owner is alive."""
        try:
            tf.io.gfile.makedirs(os.path.dirname(self.path) or ".")
            self._acquire(self._refuse)
        except READ_ERRORS as error:
            if self.path.endswith(f"/{NAME}"):
                raise DataError(
                    f"The folder {self.subject} can't be written: "
                    f"{getattr(error, 'message', error)}. Choose another --{self.flag} or change "
                    f"the permissions of this one."
                ) from error
            with atomic.name_failing_file(self.subject):
                raise

    def _acquire(self, when_alive: Callable[[Mapping[str, Any]], None]) -> None:
        watched, since = None, 0.0
        while True:
            if self.team[1] == 0 and create_lock(self.path, self._bytes()):
                return
            content = read_lock(self.path)
            if content is None:
                if self.team[1]:
                    return
                continue
            owner = lock_owner(content)
            if self.team[1] and owner.get("team") == self.team[0]:
                return
            alive = is_owner_alive(owner)
            if alive:
                when_alive(owner)
                time.sleep(_WAIT_SECONDS)
                continue
            if alive is None and watched is None:
                watched, since = content, time.monotonic()
                logging.info(
                    "%s is locked by %s. Waiting for a sign of life, for up to %.0f s.",
                    self.subject,
                    owner_in_words(owner),
                    SILENT_SECONDS,
                )
                continue
            if alive is None and content != watched:
                when_alive(owner)
                watched = None
                continue
            if alive is None and time.monotonic() - since < SILENT_SECONDS:
                time.sleep(_WAIT_SECONDS)
                continue
            if self.team[1] or self._take_over(owner):
                return

    def _take_over(self, dead: Mapping[str, Any]) -> bool:
        """Puts this lock in a dead owner's place, unless somebody else does.

        Who may do that is settled by a lock of its own, which is called by the dead owner's token:
        so that nobody ever replaces the lock of one that is alive.
        """
        claim = _Lock(f"{self.path}.{dead['token']}", self.flag, self.subject)
        claim._acquire(lambda owner: None)
        try:
            content = read_lock(self.path)
            if content is None or lock_owner(content)["token"] != dead["token"]:
                return False
            logging.info(
                "Taking over %s from %s, which is dead.", self.subject, owner_in_words(dead)
            )
            if not replace_lock(self.path, self._bytes()):
                return False
        finally:
            claim.release()
        time.sleep(_LINGERING_SECONDS)
        return True

    def _refuse(self, owner: Mapping[str, Any]) -> None:
        raise DataError(
            f"{self.subject} is being written by {owner_in_words(owner)}. Two runs that write to "
            f"one place would mix their files. Wait for its end, end it, or give another "
            f"--{self.flag}. (The lock is {self.path}; if there is no such process, remove it.)"
        )

    def renew(self) -> bool:
        """Gives a sign of life; False if the lock is another's now."""
        self._beats += 1
        try:
            content = read_lock(self.path)
            if content is None:  # somebody has removed it
                return create_lock(self.path, self._bytes())
            if lock_owner(content)["token"] != self.token:
                return False
            rewrite_lock(self.path, self._bytes())
        except READ_ERRORS as error:
            logging.debug("No sign of life in %s this time: %s", self.path, error)
        return True

    def release(self) -> None:
        with contextlib.suppress(*READ_ERRORS):
            content = read_lock(self.path)
            if content is not None and lock_owner(content)["token"] == self.token:
                tf.io.gfile.remove(self.path)


def _keep_alive(locks: Sequence[_Lock], ended: threading.Event) -> None:
    while not ended.wait(BEAT_SECONDS):
        for lock in locks:
            if not lock.renew() and not ended.is_set():
                _give_up(lock)


def _give_up(lock: _Lock) -> None:
    print(
        f"\nError: {lock.subject} was taken over by another run while this process stood still "
        f"for over {SILENT_SECONDS:.0f} s (see {lock.path}). It ends at once, so that their files "
        f"don't mix.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)
