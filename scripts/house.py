"""Prints the figures of the house: lines, files, rooms, circles, names, functions, tests.

    python scripts/house.py [FOLDER]

FOLDER is another checkout to be measured; this one if it is left out.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import median, quantiles

Trees = dict[str, tuple[Path, ast.Module]]


def read(root: Path) -> Trees:
    """All modules of the package, parsed, by their dotted names."""
    found: Trees = {}
    for path in sorted(root.glob("gateway/**/*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path, ast.parse(path.read_text())
    return found


def graph(trees: Trees, *, for_types: bool) -> dict[str, set[str]]:
    """Which module imports which, inside functions too; those for types only on request."""
    edges: dict[str, set[str]] = {}
    for module, (_, tree) in trees.items():
        names = set(_imports(tree, for_types=for_types))
        targets = {name if name in trees else name.rpartition(".")[0] for name in names}
        edges[module] = {one for one in targets & set(trees) if one not in {module, "gateway"}}
    return edges


def _imports(node: ast.AST, *, for_types: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test) and not for_types:
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from _imports(child, for_types=for_types)


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other in a loop."""
    reached: dict[str, set[str]] = {}
    for start in edges:
        seen: set[str] = set()
        left = [start]
        while left:
            for name in edges[left.pop()] - seen:
                seen.add(name)
                left.append(name)
        reached[start] = seen
    groups: dict[frozenset[str], None] = {}
    for module, seen in reached.items():
        if module in seen:
            groups[frozenset(one for one in seen if module in reached[one])] = None
    return sorted(map(sorted, groups), key=len, reverse=True)


def against_the_stream(edges: dict[str, set[str]]) -> int:
    """Imports between two folders of which the other imports the first more often."""
    between: Counter[tuple[str, str]] = Counter()
    for module, targets in edges.items():
        for target in targets:
            here, there = module.rpartition(".")[0], target.rpartition(".")[0]
            if here != there:
                between[here, there] += 1
    return sum(times for (here, there), times in between.items() if between[there, here] > times)


def lengths(trees: Trees) -> list[int]:
    """Lines of each function."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return sorted(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for _, tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, kinds)
    )


def classes(trees: Trees) -> Counter[str]:
    """How often each public class name is used."""
    return Counter(
        node.name
        for _, tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )


def unmirrored(root: Path, trees: Trees) -> list[str]:
    """Modules without a test file of their own name, but for those that only import."""
    plain = ast.Expr | ast.Import | ast.ImportFrom | ast.Assign
    return [
        ".".join(path.relative_to(root / "gateway").with_suffix("").parts)
        for path, tree in trees.values()
        if not (
            root / "tests" / path.relative_to(root / "gateway").parent / f"test_{path.name}"
        ).is_file()
        and not all(isinstance(node, plain) for node in tree.body)
    ]


def rows(root: Path) -> list[str]:
    """The names in the table of tests that cover other modules."""
    table = root / "tests" / "covered.py"
    if not table.is_file():
        return []
    (value,) = (
        node.value
        for node in ast.parse(table.read_text()).body
        if isinstance(node, ast.AnnAssign) and node.value is not None
    )
    return " ".join(ast.literal_eval(value).values()).split()


def main() -> None:
    """Print them."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent)
    trees = read(root)
    files: dict[str, int] = defaultdict(int)
    for path, _ in trees.values():
        files[str(path.parent.relative_to(root))] += 1
    lines = sum(path.read_text().count("\n") for path, _ in trees.values())
    sizes = lengths(trees)
    twice = sorted(name for name, times in classes(trees).items() if times > 1)
    largest = sorted(files.items(), key=lambda one: -one[1])[:6]
    print(f"lines                        {lines}")
    print(f"files                        {len(trees)}")
    print(f"folders                      {len(files)}")
    print(f"loose on top                 {files['gateway'] - 2}")
    print(f"largest folders              {', '.join(f'{name} {n}' for name, n in largest)}")
    for for_types in (False, True):
        edges = graph(trees, for_types=for_types)
        groups = circles(edges)
        kind = "with imports for types" if for_types else "at run time"
        print(f"imports, {kind:19} {sum(map(len, edges.values()))}")
        print(f"  against the stream         {against_the_stream(edges)}")
        print(f"  circles                    {[len(group) for group in groups] or 'none'}")
    print(f"class names used twice       {len(twice)} {' '.join(twice)}")
    p90 = quantiles(sizes, n=10)[-1]
    print(f"function lines               median {median(sizes):g}, p90 {p90:g}, max {sizes[-1]}")
    alone = unmirrored(root, trees)
    named = rows(root)
    untold = [one for one in alone if not any(fnmatchcase(one, row) for row in named)]
    print(f"modules without a test file  {len(alone)}")
    print(f"  and without a row for one  {len(untold)}")


if __name__ == "__main__":
    main()
