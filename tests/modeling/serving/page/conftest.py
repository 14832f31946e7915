"""A server of the page in this process, with a tiny model of each family."""

import contextlib
import functools
import threading
from collections.abc import Callable, Collection, Iterator

import pytest

from modeling.serving.page.models import PageModel, load_page_models
from modeling.serving.page.server import PageServer
from tests.modeling.serving.page import exports

MOST_BYTES = 50_000


@contextlib.contextmanager
def serving(models: list[PageModel], most_bytes: int = MOST_BYTES) -> Iterator[PageServer]:
    with PageServer(0, most_bytes) as server:
        thread = threading.Thread(target=server.serve, args=[models])
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="session")
def export(tmp_path_factory) -> Callable[[str], str]:
    """From a family's name to its export, which is made when it is first asked for."""
    makers = exports.makers(tmp_path_factory.mktemp("families"))
    return functools.cache(lambda name: makers[name]())


class _Models(dict):
    """From a family's name to its model, which is loaded when it is first asked for."""

    def __init__(self, export: Callable[[str], str]):
        super().__init__()
        self._export = export

    def __missing__(self, name: str) -> PageModel:
        self[name] = load_page_models([self._export(name)])[0]
        return self[name]


def each_family(*quick: str, hours: Collection[str] = ()):
    """Parametrizes a test by `name`: slow for all but the first families given, or of hours."""
    marks: dict[str, list] = {
        name: [] if name in quick else [pytest.mark.slow] for name in exports.FAMILIES
    }
    for name in hours:
        marks[name].append(pytest.mark.hours)
    return pytest.mark.parametrize("name", [pytest.param(n, marks=marks[n]) for n in marks])


@pytest.fixture(scope="session")
def models(export) -> dict[str, PageModel]:
    return _Models(export)


@pytest.fixture(scope="session")
def server(models) -> Iterator[PageServer]:
    with serving([models[name] for name in exports.QUICK]) as server:
        yield server
