"""docs/ as a site: each page has a place in the navigation, and links lead somewhere. `make docs` checks anchors too."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
HERE = "https://github.com/keyblock/keyblock/blob/main/"


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


def listed(tree: object) -> list[str]:
    if isinstance(tree, str):
        return [tree]
    parts = tree.values() if isinstance(tree, dict) else tree
    return [name for part in parts for name in listed(part)]  # type: ignore[union-attr]


def test_every_page_has_its_place_in_the_navigation() -> None:
    configured = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert sorted(listed(configured)) == sorted(str(page.relative_to(DOCS)) for page in pages())


def place(page: Path, target: str) -> Path:
    """The file that a link leads to."""
    return ROOT / target.removeprefix(HERE) if target.startswith(HERE) else page.parent / target


def anchors(page: Path) -> set[str]:
    headings = [line.lstrip("#").strip().lower() for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading)) for heading in headings}


@pytest.mark.parametrize("folder", ["docs", "lab/notes"])
def test_links_lead_somewhere(folder: str) -> None:
    broken = []
    for page in [*sorted((ROOT / folder).rglob("*.md")), ROOT / "README.md"]:
        for target, anchor in re.findall(r"\]\(([^)#\s]+\.(?:md|png|svg|json))(?:#([\w-]+))?\)", page.read_text(encoding="utf-8")):
            if target.startswith("http") and not target.startswith(HERE):
                continue
            found = place(page, target)
            if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
                broken.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert broken == []
