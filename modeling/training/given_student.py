"""The student that a run begins as: cut out of --init_checkpoint into its output folder.

    with session(values, sizes) as summary:
        if take_student(values):
            settings = fine_tuning_settings(values)  # now the student's

OUTPUT_DIR/student/ is an ordinary model folder, and student.json in it says what it was made of.
"""

import hashlib
import json
import os
from typing import Any

import tensorflow as tf
from absl import logging

from modeling import checkpoints
from modeling.checkpoints import tf1
from modeling.checkpoints.files import TASK_FILES, join, temporary_folder, write_staged_text
from modeling.checkpoints.loading import find
from modeling.checkpoints.model_folder import CONFIG_NAME, task_files
from modeling.checkpoints.students.making import Student, make_student
from modeling.checkpoints.vocabularies import text_folding
from modeling.errors import ModelingError
from modeling.training.engine.distribution import is_chief
from modeling.training.engine.loop import wait_for_workers
from modeling.training.runs.identity import weights_identity
from modeling.training.runs.run_folder import STUDENT_FOLDER, STUDENT_RECORD


def take_student(values) -> bool:
    """Lets --init_checkpoint name a student of the model that it names, if the flags ask for one.

    It is made once: where the folder holds the one that the flags mean, by checksums of the
    teacher's weights and of what lies beside them and by the settings, that one is taken, so that
    a run that was killed goes on from the same. Another one is replaced; a run that was trained
    from it will say so, since its first weights and its files belong to its identity.

    To be called in the session, by every worker: the first one writes.

    Args:
        values: The flag values `output_dir`, `do_train`, `random_seed`, those of the model and
            those of `define_student_flags`. `init_checkpoint` changes, and `bert_config_file` if
            it was given.

    Returns:
        Whether there is one, so that what was read of the model before is the teacher's.

    Raises:
        ModelingError: The flags contradict each other, the teacher or its vocabulary can't be
            used, or the folder holds something else.
    """
    source, config_file = values.init_checkpoint, values.bert_config_file
    asked = values.student_layers or values.student_num_layers or values.student_hidden_size
    if not (asked or values["student_projection"].present):
        return False
    if not source:
        raise ModelingError(
            "--init_checkpoint is missing: a student, for which the flags of a student ask, is cut "
            "out of its weights."
        )
    if not values.do_train:
        raise ModelingError(
            "A student is made to be trained: the flags of a student go with --do_train. To use "
            "what was trained, leave them and --init_checkpoint out: the weights in --output_dir "
            "are read in any case. To look at a student before its training, make it with python "
            "-m modeling.convert_checkpoint."
        )
    config = checkpoints.config_of_checkpoint(checkpoints.open_contents(source), config_file)
    student = Student.from_flags(values, config, values.random_seed)
    vocab_file = values.vocab_file
    if vocab_file:
        checkpoints.check_vocabulary(source, vocab_file)
    folder = join(values.output_dir, STUDENT_FOLDER)
    if is_chief():
        record = {
            "teacher": weights_identity(source),
            "config": config.to_dict(),
            "vocabulary": vocab_file and checkpoints.describe_vocabulary(vocab_file)["checksum"],
            "folding": text_folding(source, by_name=True),
            "task_files": _task_file_checksums(source),
            **student._asdict(),
        }
        _keep(folder, record, source, student, config_file, vocab_file)
    # The other workers read what the first has written.
    wait_for_workers()
    values["init_checkpoint"].value = folder
    if config_file:
        values["bert_config_file"].value = join(folder, CONFIG_NAME)
    return True


def _task_file_checksums(source: str) -> dict[str, str]:
    """Of what tells of the teacher's task, and comes with its student, by name."""
    checksums = {}
    for name, path in task_files(find(source)[1], TASK_FILES).items():
        with tf.io.gfile.GFile(path, "rb") as file:
            checksums[name] = hashlib.sha256(file.read()).hexdigest()
    return checksums


def _keep(
    folder: str,
    record: dict[str, Any],
    source: str,
    student: Student,
    config_file: str | None,
    vocab_file: str | None,
) -> None:
    """Makes the student unless the folder holds it: complete or not at all."""
    there = tf.io.gfile.exists(folder)
    if there and _record_of(folder) == json.loads(json.dumps(record)):
        logging.info("The student in %s was made before, of the same teacher.", folder)
        return
    parent = os.path.dirname(folder)
    with temporary_folder(parent) as temporary:
        new = join(temporary, "new")
        _, lines = make_student(source, new, *student, config_file, vocab_file)
        write_staged_text(join(new, STUDENT_RECORD), json.dumps(record, indent=1) + "\n")
        if there:
            logging.info("%s held another student, which is replaced.", folder)
            tf.io.gfile.rename(folder, join(temporary, "earlier"))
        tf.io.gfile.rename(new, folder)
    for line in lines:
        logging.info("%s", line)


def _record_of(folder: str) -> dict[str, Any]:
    """What a student's folder says it was made of; {} if its weights are gone."""
    path = join(folder, STUDENT_RECORD)
    try:
        with tf.io.gfile.GFile(path, "r") as file:
            record = json.load(file)
    except (tf.errors.OpError, ValueError) as error:
        raise ModelingError(
            f"{folder} isn't a student that an earlier run has made: {path}, which would say of "
            f"what, is missing or damaged. The run would put its student there: move the folder, "
            f"or give another --output_dir."
        ) from error
    return record if tf1.is_tf1_prefix(join(folder, tf1.RELEASE_NAME)) else {}
