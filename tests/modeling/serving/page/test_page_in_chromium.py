"""The page in a real browser: typed into, asked by keyboard, read, looked at."""

import json
import pathlib

import numpy as np
import pytest

from tests.modeling.serving.page import hostile
from tests.modeling.serving.page.chromium import (
    CONTROL,
    DONE,
    END_OF_CHORD,
    ENTER,
    SHIFT,
    SPACE,
    TAB,
    WIDE,
    Chromium,
    open_page,
)
from tests.modeling.serving.page.conftest import each_family, serving

NARROW = (320, 640)
ASK = CONTROL + ENTER + END_OF_CHORD
MARKUP = "<img src=x onerror='window.attacked=1'> the </textarea><script>window.attacked=1</script>"
# What is typed into the fields of each family, and what is in the page's answer besides.
TYPED = {
    "classes": (f"the film was good {MARKUP}",),
    "labels": ("the film was good",),
    "number": ("the film was good",),
    "pair": ("the film was good", MARKUP),
    "choices": ("it was", f"good\nin paris\n{MARKUP}"),
    "questions": ("what is in paris?", f"the tower is in paris. {MARKUP} it was good"),
    "unanswered": ("what is in paris?", "the tower is in paris."),
    "tags": (f"the tower is in paris and the film was good {MARKUP}",),
    "masks": (f"the [MASK] is in [MASK] {MARKUP}",),
    "next": ("the tower is in",),
    "similar": ("the tower", f"the door\nthe tower\n{MARKUP}\nit was good"),
}
# Elements whose text is hard to read on what lies behind it, by WCAG's ratio of 4.5.
PALE = """
const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
const light = (text) => rgb(text).slice(0, 3)
  .map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (element) => {
  const colour = getComputedStyle(element).backgroundColor;
  const above = element.parentElement;
  return (rgb(colour)[3] ?? 1) > 0 || !above ? colour : behind(above);
};
return [...document.querySelectorAll('body *')].flatMap((element) => {
  const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!(own || element.tagName === 'TEXTAREA') || !element.checkVisibility()) return [];
  const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  return ratio < 4.5 ? [`${element.className || element.tagName}: ${ratio}`] : [];
});
"""
# Names of elements that a text may not have made, with their attributes that run something.
ELEMENTS = """
return [...document.querySelectorAll('#answers *, #fields *, #examples *')].flatMap((element) =>
  [element.localName, ...element.getAttributeNames().filter((name) => name.startsWith('on'))]);
"""
KNOWN = {
    *("article", "div", "h2", "h3", "p", "span", "mark", "ol", "li", "button", "details"),
    *("summary", "label", "textarea", "table", "thead", "tbody", "tr", "th", "td"),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Chromium(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def shots(tmp_path_factory) -> pathlib.Path:
    return tmp_path_factory.mktemp("shots")


def retype(browser: Chromium, texts) -> None:
    """From the first field on, by keyboard alone."""
    for text in texts:
        browser.keys(CONTROL + "a" + END_OF_CHORD)
        browser.keys(text.replace("\n", SHIFT + ENTER + END_OF_CHORD))
        browser.keys(TAB)
    browser.keys(SHIFT + TAB + END_OF_CHORD)


def check_page(browser: Chromium, address: str) -> None:
    """Nothing ran that was typed, nothing was asked elsewhere, nothing went wrong."""
    assert set(browser.script(ELEMENTS)) <= KNOWN
    assert browser.script("return window.attacked") is None
    assert browser.console() == []
    asked = {url for url in browser.addresses() if not url.startswith(("data:", "about:"))}
    assert asked <= {f"{address}{path}" for path in ("/", "/models", "/answer")}


@each_family(hours=("labels", "number", "pair", "next", "unanswered", "choices"))
def test_a_text_is_typed_and_the_answer_read(name, browser, shots, models):
    model = models[name]
    with serving([model]) as server:
        open_page(browser, server.address)
        assert browser.script("return document.activeElement.id") == "field0"
        retype(browser, TYPED[name])
        typed = browser.script(
            "return [...document.querySelectorAll('textarea')].map((f) => f.value)"
        )
        assert typed == list(TYPED[name])
        browser.keys(ASK)
        browser.until(DONE)
        check_answer(browser, model, TYPED[name])
        assert " ms · round trip " in browser.script(
            "return document.querySelector('.time').innerText"
        )
        for size in (WIDE, NARROW):
            for dark in (False, True):
                browser.size(*size, dark)
                path = shots / f"{name}-{size[0]}{'-dark' if dark else ''}.png"
                assert width_of(browser.screenshot(path)) == size[0]
                assert browser.script(PALE) == []
                width = browser.script("return document.documentElement.scrollWidth")
                assert width <= size[0]
        check_page(browser, server.address)


def width_of(png: bytes) -> int:
    assert png.startswith(b"\x89PNG")
    return int.from_bytes(png[16:20], "big")


def entities(browser: Chromium) -> list[list[str]]:
    """Of each entity that is marked its text, what stands beside it, and its title."""
    return browser.script(
        "return [...document.querySelectorAll('p.text .entity')].map((e) => "
        "[e.firstChild.data, e.querySelector('.kind').textContent, e.title])"
    )


def table(browser: Chromium) -> list[list[str]]:
    """Its cells, as soon as it is there."""
    browser.until("document.querySelector('tr')")
    return browser.script(
        "return [...document.querySelectorAll('tr')].map((row) => "
        "[...row.children].map((cell) => cell.textContent))"
    )


def check_answer(browser: Chromium, model, typed) -> None:
    """What is read in the page is what the model answers."""
    values = [
        [line for line in text.split("\n") if line.strip()]
        if name in ("choices", "texts")
        else text
        for name, text in zip(model.family.fields, typed, strict=True)
    ]
    outputs, _ = model.answer(dict(zip(model.family.fields, values, strict=True)))
    names, shown = browser.script(
        "return ['.bar .name', '.bar .value'].map((s) => "
        "[...document.querySelectorAll(s)].map((e) => e.textContent))"
    )
    big = browser.script("return document.querySelector('.big, .number')?.textContent")
    text = browser.script("return document.querySelector('p.text:not(.big)')?.textContent")

    def percents(shares) -> list[str]:
        return [f"{100 * share:.1f}\xa0%" for share in shares]

    def agree(labels, shares) -> None:
        assert names == list(labels) and len(shown) == len(shares)
        for one, share in zip(shown, shares, strict=True):
            assert float(one.removesuffix("\xa0%")) == pytest.approx(100 * share, abs=0.11)

    family = model.family.name
    if family in ("classes", "labels"):
        order = np.argsort(outputs["probabilities"])[::-1]
        agree(*([outputs[key][n] for n in order] for key in ("labels", "probabilities")))
        found = set(outputs["predicted"]) - {""} if family == "labels" else {outputs["label"]}
        assert set(big.split(", ")) == found
    elif family == "number":
        assert float(big) == pytest.approx(outputs["score"], abs=1e-3)
    elif family == "choices":
        agree(values[1], outputs["probabilities"])
        assert big == outputs["choice_text"]
    elif family == "questions":
        agree(outputs["answers"], outputs["probabilities"])
        assert text == values[1]
        mark = browser.script("return document.querySelector('mark')?.textContent")
        assert mark == (outputs["answer"] or None)
        assert big == (outputs["answer"] or "No answer in this context")
        pressed = "return document.querySelectorAll('.body [aria-pressed=true]').length"
        assert browser.script(pressed) == (1 if outputs["answer"] else 0)
        # A runner-up, chosen by keyboard, is marked in turn.
        browser.script("document.querySelectorAll('button.bar')[1].focus()")
        browser.keys(SPACE)
        mark = browser.script("return document.querySelector('mark').textContent")
        assert mark == outputs["answers"][1]
    elif family == "tags":
        found = entities(browser)
        scores = percents(outputs["entity_scores"])
        kinds = map(" ".join, zip(outputs["entity_types"], scores, strict=True))
        pairs = zip(outputs["entity_texts"], kinds, strict=True)
        assert [one[:2] for one in found] == [list(pair) for pair in pairs] != []
        legend = browser.script("return document.querySelector('.legend').innerText")
        assert all(kind in legend for kind in outputs["entity_types"])
        columns = outputs["words"], outputs["tags"], percents(outputs["scores"])
        rows = [list(row) for row in zip(*columns, strict=True)]
        places = zip(outputs["entity_start_words"], outputs["entity_end_words"], strict=True)
        titles = ["\n".join(map("  ".join, rows[start:end])) for start, end in places]
        assert [one[2] for one in found] == titles
        # What a pointer finds in the titles, keys and screen readers find in a table.
        browser.script("document.querySelector('.words summary').focus()")
        browser.keys(SPACE)
        assert table(browser) == [["Word", "Tag", "Probability"], *rows]
    elif family == "masks":
        agree(*([x for row in outputs[key] for x in row] for key in ("words", "scores")))
        filled = values[0]
        for words in outputs["words"]:
            filled = filled.replace("[MASK]", words[0], 1)
        assert text == filled
        # Another candidate, chosen by keyboard, takes its place.
        browser.script("document.querySelectorAll('button.bar')[1].focus()")
        browser.keys(SPACE)
        slot = browser.script("return document.querySelector('.slot').textContent")
        pressed = browser.script(
            "return document.querySelectorAll('.body [aria-pressed=true]').length"
        )
        assert slot == outputs["words"][0][1] and pressed == len(outputs["words"])
    elif family == "next":
        agree(outputs["words"], outputs["scores"])
        assert text == f"{values[0]} … {outputs['words'][0]}"
    elif family == "similar":
        order = np.argsort(outputs["scores"])[::-1]
        assert names == [values[1][n] for n in order]
        assert [float(one) for one in shown] == pytest.approx(
            [outputs["scores"][n] for n in order], abs=1e-3
        )


def test_taggers_of_before_there_were_scores(browser, models, monkeypatch):
    model = models["tags"]
    answer = model.answer

    def older(inputs):
        outputs, milliseconds = answer(inputs)
        return {k: v for k, v in outputs.items() if not k.endswith("scores")}, milliseconds

    monkeypatch.setattr(model, "answer", older)
    with serving([model]) as server:
        open_page(browser, server.address)
        browser.keys(ENTER)
        browser.until(DONE)
        outputs, _ = older({"text": model.family.examples[0][0]})
        assert [one[1] for one in entities(browser)] == outputs["entity_types"] != []
        browser.script("document.querySelector('.words summary').click()")
        rows = zip(outputs["words"], outputs["tags"], strict=True)
        assert table(browser) == [["Word", "Tag"], *map(list, rows)]
        check_page(browser, server.address)


@pytest.mark.slow
def test_models_side_by_side_and_their_forms(browser, shots, models):
    together = [models[name] for name in ("classes", "labels", "tags", "number", "masks")]
    with serving(together) as server:
        open_page(browser, server.address)
        titles = browser.script(
            "return [...document.querySelectorAll('h2')].map((e) => e.textContent)"
        )
        assert titles == ["classes", "labels", "tags", "number"]
        retype(browser, ["the tower in paris was good"])
        browser.keys(ENTER)
        browser.until(DONE)
        browser.screenshot(shots / "side-by-side.png")
        browser.size(*NARROW)
        assert width_of(browser.screenshot(shots / "side-by-side-320.png")) == NARROW[0]
        assert browser.script("return document.documentElement.scrollWidth") <= NARROW[0]
        # To the other form, which stands before the field.
        browser.keys(SHIFT + TAB + END_OF_CHORD)
        browser.keys(ENTER)
        assert browser.script("return document.querySelectorAll('.card').length") == 1
        browser.script("document.querySelector('#mask').focus()")
        browser.keys(ENTER)
        assert browser.script("return document.activeElement.value").endswith("[MASK]")
        check_page(browser, server.address)


@pytest.mark.slow
def test_examples_and_the_order_of_the_focus(browser, models):
    with serving([models["questions"]]) as server:
        open_page(browser, server.address)
        texts = [browser.script("return document.activeElement.id")]
        for _ in range(5):
            browser.keys(TAB)
            texts.append(
                browser.script(
                    "return document.activeElement.id || document.activeElement.innerText"
                )
            )
        examples = [example[0] for example in models["questions"].family.examples]
        assert texts == ["field0", "field1", "Ask", *examples]
        browser.keys(ENTER)
        browser.until(DONE)
        assert browser.script("return document.querySelector('#field0').value") == examples[2]
        labels = browser.script(
            "return [...document.querySelectorAll('textarea')].map((f) => f.labels[0].innerText)"
        )
        assert labels == ["Question", "Context"]
        shift = browser.script(
            "return new Promise((done) => new PerformanceObserver((list) => done(list.getEntries()"
            ".filter((e) => !e.hadRecentInput).reduce((sum, e) => sum + e.value, 0)))"
            ".observe({type: 'layout-shift', buffered: true}) || setTimeout(() => done(0), 500))"
        )
        assert shift < 0.1
        check_page(browser, server.address)


@pytest.mark.slow
def test_errors_are_shown(browser, shots, models):
    with serving([models["choices"], models["classes"]], most_bytes=2000) as server:
        open_page(browser, server.address)
        retype(browser, ["it was", " "])
        browser.keys(ASK)
        failed = "document.querySelector('.card').dataset.state === 'failed'"
        said = "return document.querySelector('.error').textContent"
        browser.until(failed)
        assert "0 texts; give 1 to 1,000" in browser.script(said)
        browser.script("document.querySelector('#field0').value = '<b>'.repeat(3000)")
        browser.keys(ASK)
        browser.until(f"{failed} && document.querySelector('.error').textContent.includes('bytes')")
        assert "but 2,000 are the most that this page takes" in browser.script(said)
        browser.screenshot(shots / "errors.png")
        errors = browser.console()
        assert all("422" in line or "413" in line for line in errors)
        check_page(browser, server.address)


# Asks with given values of the fields, and waits for the answers.
_FILL = """
const values = JSON.parse(arguments[0]);
values.forEach((value, at) => { document.querySelector(`#field${at}`).value = value; });
document.querySelector('#form').requestSubmit();
return new Promise((done) => {
  const look = () => document.querySelector('.card[aria-busy=true]') ? setTimeout(look, 2)
    : done(JSON.stringify(document.querySelector('#answers').textContent));
  look();
});
"""


def paired(text: str) -> str:
    """With surrogates that meet as the one character that they are in a browser."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["similar", "choices", "questions", "tags", "masks"])
def test_ten_thousand_hostile_texts_are_shown_as_texts(name, browser, models):
    """Where the page shows them. In lists a hundred of them are asked at once."""
    lists = name in ("similar", "choices")
    texts = hostile.hostile_texts(10_000 if name == "similar" else 1000, seed=len(name))
    # What a field of several lines makes of them: no ends of lines, and no halves of pairs.
    lines = [" ".join(text.splitlines()) for text in texts]
    model = models[name]
    with serving([model], most_bytes=10**6) as server:
        open_page(browser, server.address)
        size = 100 if lists else 1
        for place in range(0, len(lines) if lists else 150, size):
            some = lines[place : place + size]
            values = list(model.family.examples[0])
            values[-1] = "\n".join(some)
            # The protocol has no halves of surrogate pairs, JSON in a text has.
            shown = json.loads(browser.script(_FILL, json.dumps(values)))
            if not place % (20 * size):
                assert set(browser.script(ELEMENTS)) <= KNOWN, some
            if lists:
                for text in map(paired, some):
                    blank = not "".join(text.split()).strip("\ufeff")
                    assert blank or text in shown, (text, shown)
        assert set(browser.script(ELEMENTS)) <= KNOWN
        assert browser.script("return window.attacked") is None
        assert [line for line in browser.console() if "422" not in line] == []


def test_taggers_without_types(browser, models, monkeypatch):
    """Of B, I and O alone: their entities have no name, but are there."""
    model = models["tags"]
    answer = model.answer

    def nameless(inputs):
        outputs, milliseconds = answer(inputs)
        return outputs | {"entity_types": [""] * len(outputs["entity_types"])}, milliseconds

    monkeypatch.setattr(model, "answer", nameless)
    with serving([model]) as server:
        open_page(browser, server.address)
        browser.keys(ENTER)
        browser.until(DONE)
        outputs, _ = nameless({"text": model.family.examples[0][0]})
        found = entities(browser)
        assert [one[0] for one in found] == outputs["entity_texts"] != []
        assert all(one[1].startswith("entity ") for one in found)
        check_page(browser, server.address)
