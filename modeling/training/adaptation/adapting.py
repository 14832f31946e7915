"""What an adaptation has gained and lost: measured before and after, told in a report.

    adaptation = Adaptation(values, domain, texts, from_pretrained)
    adaptation.begin()          # makes the start and the plan
    train(...)                  # as the flags say now
    adaptation.finish(summary)  # adaptation.json and report.html in the output folder

Losses are those of whole words that are masked, per word, so that models of different vocabularies
can be compared.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

from absl import logging

from modeling import checkpoints
from modeling.checkpoints.files import join, staged, write_staged_text
from modeling.losses import PretrainingLosses
from modeling.training.adaptation.neighbours import changed_neighbours, word_vectors
from modeling.training.adaptation.page import adaptation_html
from modeling.training.adaptation.plan import (
    RehearsedText,
    StudiedText,
    make_start,
    plan_adaptation,
)
from modeling.training.engine.evaluation import Evaluator
from modeling.training.reports.facts import RunFacts
from modeling.training.runs.run_folder import latest_run_step
from modeling.training.runs.summary import RunSummary

FILE, PAGE = "adaptation.json", "report.html"
MOST_WORDS = 1000
"""Whose neighbours are compared: the domain's most frequent ones."""
_HEAD = "cls/predictions/transform/dense/kernel"


class Adaptation:
    """One adaptation, from the given model to the trained one.

    Args:
        values: The script's flag values.
        domain: What `data.pretraining.domain.study_domain` found out.
        texts: "domain" and, if there is any, "general" → from the model's tokenizer, that of the
            given model, path of records and length to `data.pretraining.judged_text.MaskedWords` of
            held-out text.
        from_pretrained: `pretrained.from_pretrained`.
        rehearsed: What `data.pretraining.rehearsal.rehearse` found to train on besides.
    """

    def __init__(
        self,
        values,
        domain: StudiedText,
        texts: Mapping[str, Callable],
        from_pretrained: Callable[..., Any],
        rehearsed: RehearsedText,
    ):
        self._values, self._domain, self._texts = values, domain, texts
        self._from_pretrained = from_pretrained
        self._rehearsed = rehearsed
        self._found: dict[str, Any] = {
            "domain": _plain(domain),
            "rehearsed_characters": rehearsed.characters,
            "rehearsed_characters_wanted": round(rehearsed.wanted),
        }
        self._words = list(domain.frequent[:MOST_WORDS])

    def begin(self) -> None:
        """Makes the start, plans, and judges the model as it is given."""
        values = self._values
        given = {
            "config_file": values.bert_config_file,
            "vocab_file": values.vocab_file,
            "do_lower_case": values.do_lower_case,
            "strip_accents": values.strip_accents,
        }
        source = values.init_checkpoint
        has_head = _has_head(source)
        opened = self._open(source, **given)
        self._given_tokenizer = opened.tokenizer
        config = opened.config
        head = config.head if has_head else None
        start = make_start(values, self._domain)
        sizes = config.hidden_size, config.max_position_embeddings
        plan = plan_adaptation(values, self._domain, self._rehearsed, *sizes, head)
        self._found |= {
            "model": source,
            "start": start,
            "plan": plan,
            "has_masked_lm_head": has_head,
            "before": self._judge(opened, "before"),
        }
        if start != source:
            opened = self._open(start)
        self._before = self._vectors(opened)

    def finish(self, summary: RunSummary, step: int) -> None:
        """Judges the trained model, and writes the report.

        Args:
            summary: Of the session.
            step: Of the weights, which with --best_metric aren't the last ones.
        """
        folder = self._values.output_dir
        opened = self._open(folder)
        self._found["after"] = self._judge(opened, "after")
        changes = changed_neighbours(self._words, self._before, self._vectors(opened))
        self._found["neighbours"] = [change._asdict() for change in changes]
        self._found["compared_words"] = len(self._words)
        steps = latest_run_step(folder)
        self._found["cost"] = {
            "steps": steps,
            "seconds": round(summary.elapsed_seconds),
            "killed_sessions": summary.killed_sessions,
        }
        facts = RunFacts.of_run(folder, summary, step)
        with staged(folder) as temporary:
            text = json.dumps(self._found, indent=1, ensure_ascii=False)
            write_staged_text(join(temporary, FILE), text + "\n")
            write_staged_text(join(temporary, PAGE), adaptation_html(self._found, facts))
        for name, after in self._found["after"].items():
            before = self._found["before"][name]
            logging.info(
                "Masked words of %s text: loss per word %.4f before, %.4f now",
                name,
                before["loss_per_word"],
                after["loss_per_word"],
            )
        logging.info("Wrote %s and %s for people, in %s", FILE, PAGE, folder)

    def _open(self, path: str, **given):
        return self._from_pretrained(path, None if _has_head(path) else "masked_lm", **given)

    def _judge(self, opened, when: str) -> dict[str, dict[str, float]]:
        """Losses and accuracy of masked words, for each text."""
        evaluator = Evaluator(opened.model, PretrainingLosses(next_sentence=False))
        results = {}
        for name, masked_words in self._texts.items():
            path = join(self._values.output_dir, f"records/{name}-{when}.tfrecord")
            tokenizers = opened.tokenizer, self._given_tokenizer
            masked = masked_words(*tokenizers, path, self._values.max_seq_length)
            found = evaluator(masked.batches)
            loss = found["masked_lm_loss"]
            results[name] = {
                "loss_per_word": loss * masked.pieces / masked.words,
                "masked_lm_loss": loss,
                "masked_lm_accuracy": found["masked_lm_accuracy"],
                "words": masked.words,
                "checksum": masked.checksum,
            }
        return results

    def _vectors(self, opened):
        tokenizer = opened.tokenizer
        places = {token: number for number, token in enumerate(tokenizer.vocab)}
        ids = [places[word] for word in self._words]
        return word_vectors(opened.model.encoder, ids, tokenizer.cls_id, tokenizer.sep_id)


def _has_head(path: str) -> bool:
    return _HEAD in checkpoints.open_contents(path).shapes


def _plain(domain) -> dict[str, Any]:
    """What is told of the domain, as JSON holds it."""
    told = dataclasses.asdict(domain)
    for name in ("before", "after"):
        coverage = getattr(domain, name)
        told[name] = {
            "pieces_per_word": coverage.pieces_per_word,
            "unknown_share": coverage.unknown_share,
        }
    del told["frequent"], told["new_pieces"]
    return told | {"new_words": list(domain.new_words.values())}
