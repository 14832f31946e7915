"""Writes the card and the pages of a run into its folder."""

from collections.abc import Sequence

from absl import logging

from modeling.checkpoints.files import join, staged, write_staged_text
from modeling.training.engine.distribution import is_chief
from modeling.training.reports.card import card_markdown
from modeling.training.reports.facts import JudgedSplit, RunFacts, command_to_ask
from modeling.training.reports.page import page_html
from modeling.training.runs.reporting import read_metrics_file
from modeling.training.runs.summary import RunSummary

CARD = "model_card.md"


def write_reports(
    directory: str, splits: Sequence[JudgedSplit], summary: RunSummary, step: int
) -> None:
    """Writes `model_card.md`, `report.html` and, of further splits, report_NAME.html.

    Of several workers only the chief does; to be called in the strategy's scope.

    Args:
        directory: The run's output folder.
        splits: The main one first.
        summary: Of the session.
        step: Of the weights.

    Raises:
        ModelingError: The folder can't be written.
    """
    if not splits or not is_chief():
        return
    facts, metrics = RunFacts.of_run(directory, summary, step), read_metrics_file(directory)
    command = command_to_ask(directory, summary, splits[0].report.example)
    texts = {CARD: card_markdown(facts, splits, command)}
    for split in splits:
        end = "" if split is splits[0] else f"_{split.name}"
        texts[f"report{end}.html"] = page_html(facts, split, metrics, command)
    with staged(directory) as temporary:
        for name, text in texts.items():
            write_staged_text(join(temporary, name), text)
    logging.info("Wrote %s for people, in %s", " and ".join(texts), directory)
