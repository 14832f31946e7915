"""Packages of a few small modules, for tests of what the demos make of docstrings."""

from data.demo.modules import LIBRARIES, DemoModule, part_of_module


def written_modules(folder, sources: dict[str, str]) -> list[DemoModule]:
    """Modules with these texts: names such as "numpy/linalg.py" to sources."""
    modules = []
    for name, source in sources.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
        library = LIBRARIES[name.partition("/")[0]]
        modules.append(DemoModule(library, name, str(path), part_of_module(name)))
    return modules
