"""docs/ as a site: each page has a place in the navigation, and links lead somewhere. `make docs` checks anchors too."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
WORDS_IN_TEN_MINUTES = 2200


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


def test_links_between_pages_lead_somewhere() -> None:
    links = re.compile(r"\]\(([^)#:\s]+\.(?:md|png|svg|json))[^)]*\)")
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages()
        for target in links.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / target).exists()
    ]
    assert broken == []


def prose(page: Path) -> int:
    """Words outside tables and code."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return sum(len(line.split()) for line in text.splitlines() if not line.startswith("|"))


def test_no_page_takes_longer_than_ten_minutes() -> None:
    assert {str(page.relative_to(ROOT)): prose(page) for page in pages() if prose(page) > WORDS_IN_TEN_MINUTES} == {}
