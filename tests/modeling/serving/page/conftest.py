"""A server of the page in this process, with a tiny model of each family."""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator

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


@pytest.fixture(scope="session")
def models(export) -> dict[str, PageModel]:
    names = (*exports.FAMILIES,)
    loaded = load_page_models([export(name) for name in names])
    return dict(zip(names, loaded, strict=True))


@pytest.fixture(scope="session")
def server(models) -> Iterator[PageServer]:
    with serving(list(models.values())) as server:
        yield server
