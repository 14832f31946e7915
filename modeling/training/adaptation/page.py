"""`report.html` of an adaptation: losses before and after, vocabulary, changed words, cost."""

from collections.abc import Mapping
from typing import Any

from modeling.logs import duration_text
from modeling.training.reports.contents import ReportTable
from modeling.training.reports.facts import RunFacts
from modeling.training.reports.page import number_text, page_table, page_template

_SHOWN = 5  # neighbours of a word
_TEXTS = {"domain": "the domain", "general": "general text"}
_LOSSES = {"loss_per_word": "loss per masked word", "masked_lm_loss": "loss per masked piece"}
_NO_GENERAL = (
    "What the model has forgotten of general text was not measured: there was none. Give some as "
    "--general_corpus_file."
)
_NO_HEAD = (
    "The given weights have no head for masked words, so that the losses before are those of a "
    "new, random one."
)
_CHANGED = (
    "The held-out text of {} isn't the same before and after: its files were changed meanwhile. "
    "Their losses can't be compared."
)


def adaptation_html(found: Mapping[str, Any], facts: RunFacts) -> str:
    """The page.

    Args:
        found: What `adapting.Adaptation` writes as adaptation.json.
        facts: Of the run.
    """
    before, after = found["before"], found["after"]
    notes = [
        "Losses are of held-out text of which 15 % of the words are masked, in nats per word: all "
        "pieces of a word are masked, and their losses are added."
    ]
    notes += [_NO_GENERAL] * ("general" not in after) + [_NO_HEAD] * (
        not found["has_masked_lm_head"]
    )
    changed = [_TEXTS[n] for n, now in after.items() if now["checksum"] != before[n]["checksum"]]
    notes += [_CHANGED.format(", ".join(changed))] * bool(changed)
    domain = found["domain"]
    return page_template("adaptation.html").render(
        title=f"{facts.name}: adapted to a domain",
        subtitle=f"{facts.model}, step {facts.step:,}; from {found['model']}; {facts.date}",
        scores=[
            {
                "name": f"loss per word, {_TEXTS[name]}",
                "value": number_text(now["loss_per_word"]),
                "interval": f"before: {number_text(before[name]['loss_per_word'])}",
            }
            for name, now in after.items()
        ],
        notes=notes,
        tables=[page_table(_losses(before, after))],
        vocabulary=page_table(_vocabulary(domain)),
        new_words=", ".join(domain["new_words"]),
        neighbours=page_table(_neighbours(found["neighbours"])),
        compared=f"{found['compared_words']:,}",
        facts=[
            ("Text", f"{domain['words']:,} words, about {domain['pieces']:,} pieces"),
            ("General text trained on besides", _rehearsed(found)),
            ("Cost", _cost(found["cost"])),
            ("Plan", found["plan"]),
            ("Machine", facts.machine),
            ("Software", facts.made),
            *facts.settings.items(),
        ],
        command="",
    )


def _losses(before: Mapping, after: Mapping) -> ReportTable:
    rows: list[list] = []
    for name, now in after.items():
        then, text = before[name], _TEXTS[name]
        for key, what in _LOSSES.items():
            change = f"{now[key] / then[key] - 1:+.1%}" if then[key] else ""
            rows.append([f"{text}, {what}", float(then[key]), float(now[key]), change])
        key = "masked_lm_accuracy"
        points = f"{100 * (now[key] - then[key]):+.1f} points"
        rows.append([f"{text}, pieces guessed right", float(then[key]), float(now[key]), points])
    words = ", ".join(f"{_TEXTS[name]}: {now['words']:,} words" for name, now in after.items())
    note = f"Masked are, of {words}. Where words were added, pieces differ before and after."
    return ReportTable("", ["held out", "before", "after", "change"], rows, note, bars=False)


def _rehearsed(found: Mapping) -> str:
    characters, wanted = (found[f"rehearsed_characters{ending}"] for ending in ("", "_wanted"))
    text = f"{characters:,} characters"
    return text + f" of {wanted:,} asked for: there were no more" * (characters < wanted)


def _cost(cost: Mapping) -> str:
    text = f"{cost['steps']:,} steps, {duration_text(cost['seconds'])} in all"
    killed = cost["killed_sessions"]
    return text + f", without what killed sessions took ({killed:,})" * bool(killed)


def _vocabulary(domain: Mapping) -> ReportTable:
    before, after = domain["before"], domain["after"]
    rows = [
        ["pieces per word", before["pieces_per_word"], after["pieces_per_word"]],
        ["[UNK] among the pieces", before["unknown_share"], after["unknown_share"]],
        ["words that are one token", domain["known_share"], ""],
        ["the vocabulary's words that occur", domain["tokens_seen"], ""],
    ]
    note = f"{len(domain['new_words']):,} words took the places of [unused…] tokens."
    return ReportTable("", ["", "given", "used"], rows, note, bars=False)


def _neighbours(changes: list[Mapping]) -> ReportTable:
    rows = [
        [change["word"], *(", ".join(change[when][:_SHOWN]) for when in ("before", "after"))]
        for change in changes
    ]
    note = "The nearest of the domain's frequent words, by what the encoder makes of each alone."
    return ReportTable("", ["word", "near it before", "near it now"], rows, note)
