"""Imports go one way, down the layers; optional packages are imported where they are needed and not before."""

import ast
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "penstock"

# Low to high. Each name is a module or a folder of penstock; a new one needs a place here.
LAYERS = [
    {"errors", "_native"},
    {"core", "memory"},
    {"io", "workers", "ranks", "reports"},
    {"live"},
    {"sources.reading"},
    {"shards"},
    {"stages"},
    {"sources"},
    {"engine"},
    {"writers"},
    {"outlets", "tfrecord"},
    {"regrouping"},
    {"subsets"},
    {"dataset"},
    {"makers"},
    {"feeds", "cli"},
    {"__init__", "__main__"},
]
FRAMEWORKS = {"tensorflow", "jax", "torch", "keras"}
# Where a package's import name is not its name on the index.
IMPORT_NAMES = {"pillow": "PIL"}
# What no extra names, because the frameworks depend on it.
BROUGHT_ALONG = {"ml_dtypes"}


@cache
def optional_packages():
    """The import names of everything in the extras that users install."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    names = {
        requirement.split(">")[0].split("[")[0].strip()
        for extra, requirements in extras.items()
        if extra not in ("all", "test", "dev")
        for requirement in requirements
    }
    return {IMPORT_NAMES.get(name, name) for name in names} | BROUGHT_ALONG


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules():
    paths = [*PACKAGE.rglob("*.py"), *PACKAGE.glob("*.pyi")]
    return {module_name(path): path for path in sorted(paths)}


def layer_name(module):
    """The folder that a module is in, the innermost one that is a layer of its own."""
    parts = module.split(".")[1:] or ["__init__"]
    names = [".".join(parts[:depth]) for depth in range(len(parts), 0, -1)]
    return next((name for name in names if any(name in names_ for names_ in LAYERS)), parts[0])


def layer(module):
    name = layer_name(module)
    found = [height for height, names in enumerate(LAYERS) if name in names]
    assert found, f"penstock/{name} has no place in LAYERS of {Path(__file__).name}: give it one"
    return found[0]


def is_type_checking(node):
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Name | ast.Attribute) and "TYPE_CHECKING" in ast.unparse(test)


def resolve(node, module):
    """The full names that an import statement asks for: of `from a import b`, `a.b` if that is a module, or `a`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        is_package = modules()[module].name == "__init__.py"
        parts = module.split(".")
        parts = parts[: len(parts) - node.level + is_package]
        base = ".".join([*parts, *filter(None, [node.module])])
    submodules = [f"{base}.{alias.name}" for alias in node.names]
    return [name if name in modules() else base for name in submodules]


def walk_imports(module, node, *, in_function=False, for_types=False):
    """Yield (imported module, line, whether in a function, whether for types only)."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            for name in resolve(child, module):
                yield name, child.lineno, in_function, for_types
        else:
            yield from walk_imports(
                module,
                child,
                in_function=in_function
                or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda),
                for_types=for_types or is_type_checking(child),
            )


@cache
def imports(module):
    tree = ast.parse(modules()[module].read_text())
    return list(walk_imports(module, tree))


def is_ours(name):
    return name.split(".")[0] == "penstock"


def where(module, line):
    return f"{modules()[module].relative_to(ROOT)}:{line}"


def is_way_out(module, name, in_function, for_types=False):
    """Whether this is a `to_...` method of the Dataset, or its type: a feed is as optional as its framework."""
    is_late = in_function or for_types
    return is_late and module == "penstock.outlets" and layer_name(name) == "feeds"


def wrong_imports(is_wrong):
    return [
        f"{where(module, line)} imports {name}"
        for module in modules()
        for name, line, in_function, for_types in imports(module)
        if is_wrong(module, name, in_function, for_types)
    ]


def test_every_module_has_a_layer():
    for module in modules():
        layer(module)


def test_imports_go_down_the_layers():
    assert not wrong_imports(
        lambda module, name, in_function, for_types: (
            is_ours(name)
            # The package as a whole is the top: what is below names the module that it wants.
            and layer(name) > layer(module)
            and not is_way_out(module, name, in_function, for_types)
        )
    )


def test_modules_do_not_import_each_other_in_a_circle():
    graph = {
        module: {
            name
            for name, _, in_function, for_types in imports(module)
            if name in modules()
            and name != module
            and not is_way_out(module, name, in_function, for_types)
        }
        for module in modules()
    }
    # What needs nothing that is left can be taken away; only circles remain.
    while free := {module for module, needs in graph.items() if not needs & graph.keys()}:
        graph = {module: needs for module, needs in graph.items() if module not in free}
    circles = {module: sorted(needs & graph.keys()) for module, needs in graph.items()}
    assert not circles, f"each of these needs another of them: {circles}"


def test_only_optional_packages_are_imported_inside_functions():
    assert not wrong_imports(
        lambda module, name, in_function, _for_types: (
            in_function
            and name.split(".")[0] not in optional_packages()
            and not is_way_out(module, name, in_function)
            # A file of one framework is imported by that of another that can run on it.
            and layer_name(module) != "feeds"
        )
    )


def test_optional_packages_are_only_imported_when_needed():
    assert not wrong_imports(
        lambda module, name, in_function, for_types: (
            name.split(".")[0] in optional_packages()
            and not (in_function or for_types or layer_name(module) == "feeds")
        )
    )


def test_frameworks_are_only_imported_by_feeds():
    assert not wrong_imports(
        lambda module, name, *_: name.split(".")[0] in FRAMEWORKS and layer_name(module) != "feeds"
    )


def test_penstock_imports_no_optional_package():
    code = "import sys, penstock; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not optional_packages() & set(result.stdout.split())


LATER = (
    "click email importlib.metadata tempfile zipfile penstock.core.digests penstock.core.objects "
    "html http.server penstock.engine.functions.remote penstock.engine.stream.first_rows penstock.io.remote "
    "penstock.live penstock.ranks.identity penstock.reports penstock.sources.files penstock.stages.distribute "
    "penstock.stages.shuffle.scatter penstock.workers penstock.writers"
)


def test_what_most_programs_never_use_is_loaded_when_it_is():
    # What was there before is Python's own, or NumPy's.
    code = "import sys, numpy; before = set(sys.modules); "
    code += "import penstock; penstock.from_arrays; print(*set(sys.modules) - before)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(result.stdout.split())
    assert "penstock.dataset" in loaded
    assert not loaded.intersection(LATER.split())


def test_commands_that_need_no_data_load_no_numpy():
    for arguments in (["--version"], ["--help"], ["fit", "--help"]):
        code = f"import sys; from penstock.cli import main; main({arguments}); print(*sys.modules)"
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        loaded = set(result.stdout.splitlines()[-1].split())
        assert "click" in loaded
        assert not loaded.intersection(["numpy", "rich", "penstock.dataset", "penstock.errors"])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch", [("torch", False, False)]),
        ("def f():\n  import torch.nn as nn", [("torch.nn", True, False)]),
        (
            "if TYPE_CHECKING:\n  from penstock.core.spec import Spec",
            [("penstock.core.spec", False, True)],
        ),
        ("from . import _native", [("penstock._native", False, False)]),
        (
            "from penstock import _native, errors",
            [("penstock._native", False, False), ("penstock.errors", False, False)],
        ),
    ],
)
def test_the_reader_of_imports_sees_them_all(source, expected):
    found = [
        (name, in_function, for_types)
        for name, _, in_function, for_types in walk_imports("penstock.dataset", ast.parse(source))
    ]
    assert found == expected
