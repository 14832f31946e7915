"""The records of a pre-training run: which files, how they are read, and what tells them apart."""

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from data.pretraining.batches import pipeline, text_stream
from data.pretraining.corpus import TEXT_FIELD
from data.pretraining.corpus.parts import CorpusParts
from data.pretraining.instances.settings import InstanceSettings
from data.pretraining.records import schema
from data.pretraining.records.record_files import first_record
from data.tokenization import vocabulary


@dataclasses.dataclass(frozen=True)
class RecordsFromText:
    """The record files of a run.

    Attributes:
        train_files, eval_files: TFRecord files; the same ones when a share of them is held out.
        vocab_file: The vocabulary they were made with, if known.
        shared: Whether the two sides are told apart record by record (`pipeline`'s `held_out`).
        corpus: Text that is trained on without records; train_files are none then.
        settings: How instances are made of it.
        vocabulary: Checksum of the tokens that the files were made with, if they tell it.
        source: Of records that are made of text: its checksums, and whether a share is held out.
        held_out_source: The same of the text that is evaluated on.
        besides: Checksums of text that `corpus` has besides the user's; "" without any.
    """

    train_files: list[str]
    eval_files: list[str]
    vocab_file: str | None
    shared: bool = False
    corpus: CorpusParts | None = None
    settings: InstanceSettings | None = None
    vocabulary: str | None = None
    source: str = ""
    held_out_source: str = ""
    besides: str = ""

    def side(self, training: bool) -> str | None:
        """The value of `pipeline.pretraining_dataset`'s `held_out` for one side."""
        if not self.shared:
            return None
        return "train" if training else "eval"

    def describe(self, former: bool = False) -> str:
        """What is trained on, as far as a place in it means something in no other data.

        Of record files names, sizes and side: a saved place holds their paths. Of streamed text
        its checksums and how instances are made of it; once it was names, sizes and times of change
        in place of checksums (`former`), which a copy changes.
        """
        if self.corpus is not None:
            # What is as usual isn't told, so that a run of an earlier version is still the same.
            held_out = () if self.corpus.held_out else ("all",)
            field = () if self.corpus.text_field == TEXT_FIELD else (self.corpus.text_field,)
            besides = (self.besides,) if self.besides else ()
            files = self.corpus.files if former else self.source
            return "\n".join(map(str, (files, self.settings, *held_out, *field, *besides)))
        return f"{_describe_files(self.train_files)}\n{self.side(training=True)}"

    def fingerprint(self) -> str:
        """32 hexadecimal digits for what is trained on.

        Of text it is a checksum of the content. Records may be hundreds of gigabytes: of each file
        it is the length and the first record, which tells by its mark what we made it of.

        Raises:
            DataError: A first record can't be read.
        """
        return self._fingerprint(self.source, () if self.source else self.train_files)

    def held_out_fingerprint(self) -> str:
        """The same for the records that are evaluated on.

        Raises:
            DataError: A first record can't be read.
        """
        source = self.held_out_source
        return self._fingerprint(source, () if source else self.eval_files)

    def _fingerprint(self, source: str, files: Sequence[str]) -> str:
        digest = hashlib.blake2b(source.encode("utf-8", "surrogatepass"), digest_size=16)
        for path in files:
            digest.update(f"{tf.io.gfile.stat(path).length} {self.shared}\n".encode())
            digest.update(first_record(path) or b"")
        return digest.hexdigest()

    def batches(
        self,
        training: bool,
        max_seq_length: int,
        max_predictions_per_seq: int,
        vocab_size: int,
        **options,
    ) -> tf.data.Dataset:
        """Batches of one side, as of `pipeline.pretraining_dataset`; packed for training only."""
        if not training:
            options["pack_sequences"] = False
        if training and self.corpus is not None:
            names = ("batch_size", "seed", "num_shards", "shard_index", "pack_sequences")
            return text_stream.stream_instances(
                self.corpus,
                self.settings.make_tokenizer(self.vocab_file),
                self.settings,
                options["dynamic_masking"],
                **{name: options[name] for name in names},
            )
        if options["pack_sequences"] and self.vocab_file:
            tokens = vocabulary.load_vocab(self.vocab_file)
            options["continues_word"] = np.array([token.startswith("##") for token in tokens])
        return pipeline.pretraining_dataset(
            self.train_files if training else self.eval_files,
            max_seq_length,
            max_predictions_per_seq,
            vocab_size,
            training=training,
            held_out=self.side(training),
            **options,
        )

    def diagnose(
        self,
        error: tf.errors.OpError,
        max_seq_length: int,
        max_predictions: int,
        vocab_size: int,
        masked: bool | None,
    ) -> None:
        """After a failure while reading: raises DataError naming the bad text or record, if any is.

        The arguments behind the failure are those of `schema.find_bad_record`.
        """
        text_stream.raise_text_stream_error(error)
        files = list(dict.fromkeys(self.train_files + self.eval_files))
        schema.find_bad_record(files, max_seq_length, max_predictions, vocab_size, masked)


def _describe_files(files: list[str]) -> str:
    """Names and sizes of files."""
    return "\n".join(f"{path} {tf.io.gfile.stat(path).length}" for path in files)
