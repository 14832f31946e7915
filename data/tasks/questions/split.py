"""Divides question answering files by article, such as into a training and a dev part.

rest, held = split_articles(read_squad("dev-v2.0.json", version_2=True), 0.4, seed=0)
"""

import hashlib
from collections import Counter
from collections.abc import Sequence

from data.errors import DataError
from data.tasks.questions.squad import Question


def split_articles(
    questions: Sequence[Question], fraction: float, seed: int
) -> tuple[list[Question], list[Question]]:
    """Divides questions so that all of an article are on one side, whatever their order.

    Articles are told apart by their titles, those without one by their place in the file.

    Args:
        questions: What is divided; both parts keep their order.
        fraction: Of the questions, above 0 and below 1, for the second part. Met as nearly as
            whole articles, taken in an order that the seed tells, allow; no part is empty.

    Returns:
        The rest, such as for training, and the part of the given size, such as for development.

    Raises:
        DataError: The fraction is out of range, or there are fewer than two articles.
    """
    if not 0 < fraction < 1:
        raise DataError(
            f"The fraction of questions to split off is {fraction}; it has to be above 0 and below"
            " 1, such as 0.1."
        )
    sizes = Counter(_article(question) for question in questions)
    if len(sizes) < 2:
        raise DataError(
            f"{len(questions)} questions of {len(sizes)} article can't be split, since an article"
            " isn't divided; at least two are needed. Use a file of more articles."
        )
    order = sorted(sizes, key=lambda name: hashlib.sha256(f"{seed}:{name}".encode()).digest())
    wanted = fraction * len(questions)
    chosen, count = {order[0]}, sizes[order[0]]
    for name in order[1:-1]:
        if abs(count + sizes[name] - wanted) >= abs(count - wanted):
            break
        chosen.add(name)
        count += sizes[name]
    parts: tuple[list[Question], list[Question]] = ([], [])
    for question in questions:
        parts[_article(question) in chosen].append(question)
    return parts


def _article(question: Question) -> str:
    return question.title or question.source.rsplit(".paragraphs[", 1)[0]
