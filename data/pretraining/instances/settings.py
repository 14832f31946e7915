"""How records are made from text: every choice that their bytes depend on, but the text."""

from dataclasses import asdict, dataclass
from typing import Any

from data.errors import DataError
from data.pretraining.flags import MASKING, MOST_PIECES
from data.pretraining.instances import masking, pairs
from data.tokenization import Tokenizer

MLM_NSP, MLM = "mlm_nsp", "mlm"
RECORD_OBJECTIVES = (MLM_NSP, MLM)
WORDPIECE, WHITESPACE = "wordpiece", "whitespace"
WORD_BOUNDARIES = (WORDPIECE, WHITESPACE)


@dataclass(frozen=True)
class InstanceSettings:
    """Settings of `data.create_pretraining_data`; the defaults are the original release's.

    Attributes:
        max_seq_length: S, pieces per instance with [CLS] and [SEP].
        max_predictions_per_seq: P, slots for predictions in each record.
        dupe_factor: How often each document is gone through, with other pairs and masks.
        short_seq_prob: Share of instances that aim at a shorter length.
        masked_lm_prob, mask_share, random_share, do_whole_word_mask, max_ngram: See
            `masking.MaskSettings`.
        do_lower_case, strip_accents: Of the tokenizer.
        random_seed: Same seed, same bytes.
        word_boundaries: What a whole word is: "wordpiece": a piece and the "##" pieces behind it
            (so in Chinese a character); "whitespace": what stands between blanks in the text, for
            Chinese that was split into words beforehand.
        objective: "mlm_nsp": pairs of segments; "mlm": one full-length segment per instance.
        dynamic_masking: Records without masks, for training that masks anew in each epoch.
    """

    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    dupe_factor: int = 10
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    do_whole_word_mask: bool = False
    do_lower_case: bool = True
    strip_accents: bool | None = None
    random_seed: int = 12345
    mask_share: float = masking.MASK_SHARE
    random_share: float = masking.RANDOM_SHARE
    max_ngram: int = 1
    word_boundaries: str = WORDPIECE
    objective: str = MLM_NSP
    dynamic_masking: bool = False

    def identity(self) -> dict[str, Any]:
        """By name, `strip_accents` only where it says something: records of before keep theirs."""
        values = asdict(self)
        if self.strip_accents in (None, self.do_lower_case):
            del values["strip_accents"]
        return values

    def __str__(self) -> str:
        values = (f"{name}={value!r}" for name, value in self.identity().items())
        return f"InstanceSettings({', '.join(values)})"

    def make_tokenizer(self, vocab_file: str) -> Tokenizer:
        """The tokenizer that the text goes through."""
        return Tokenizer(vocab_file, self.do_lower_case, strip_accents=self.strip_accents)

    def check(self) -> None:
        """Raises DataError, naming the setting, for values out of range."""
        for name, low, most, why in (
            ("max_seq_length", pairs.MIN_SEQUENCE_LENGTH, MOST_PIECES, "[CLS] a [SEP] b [SEP]"),
            ("max_predictions_per_seq", 1, MOST_PIECES, "one prediction per instance"),
            ("dupe_factor", 1, 1_000_000, "one pass over the documents"),
        ):
            value = getattr(self, name)
            if value < low:
                raise DataError(
                    f"{name} is {value}, but {low} is the least that works ({why}). Set --{name} "
                    f"to {low} or more."
                )
            if value > most:
                raise DataError(f"{name} is {value}, but {most} is the most that --{name} may be.")
        masking.check_mask_share("short_seq_prob", self.short_seq_prob)
        self.masks(None)
        for name, known in (("objective", RECORD_OBJECTIVES), ("word_boundaries", WORD_BOUNDARIES)):
            if getattr(self, name) not in known:
                raise DataError(
                    f"{name} is {getattr(self, name)!r}, but one of {', '.join(known)} was "
                    f"expected."
                )
        words = self.do_whole_word_mask or self.max_ngram > 1
        if self.word_boundaries == WHITESPACE and not words:
            raise DataError(
                "word_boundaries is 'whitespace', which says what a whole word is, but single "
                "pieces are masked. Add --do_whole_word_mask, or leave --word_boundaries out."
            )
        if self.word_boundaries == WHITESPACE and self.dynamic_masking:
            raise DataError(
                "word_boundaries is 'whitespace', but records made for dynamic masking hold no "
                "word boundaries. Leave --dynamic_masking out: the masks are then made with the "
                "records, --dupe_factor times."
            )

    def masks(self, vocabulary: masking.MaskingVocabulary | None) -> masking.MaskSettings:
        """How the instances are masked; raises DataError for values out of range."""
        return masking.MaskSettings(vocabulary, **{name: getattr(self, name) for name in MASKING})
