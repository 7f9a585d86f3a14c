"""The documents: the reference is current, links lead somewhere, the README begins with what a newcomer types."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_FOREIGN = {"node_modules", "var", "build", "dist"}
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def documents() -> list[str]:
    """Every Markdown file of the project, below no hidden or made directory."""
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*.md"))
    return sorted(
        str(path) for path in found if not any(part.startswith(".") or part in _FOREIGN for part in path.parts)
    )


def links(text: str) -> list[str]:
    return _LINK.findall(_CODE.sub("", _FENCE.sub("", text)))


def anchors(text: str) -> set[str]:
    """The names GitHub gives to headings: lower case, blanks become hyphens, punctuation goes."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_reference_is_current() -> None:
    ended = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_page_that_is_not_current_is_named(tmp_path: Path) -> None:
    (tmp_path / "generate.py").write_bytes((ROOT / "docs/generate.py").read_bytes())
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "generate.py"), "--check"], capture_output=True, text=True, timeout=60
    )

    assert ended.returncode == 1
    assert [line.split()[0] for line in ended.stdout.splitlines()] == [
        "docs/reference/metrics.md",
        "docs/reference/config.md",
        "docs/reference/cli.md",
        "docs/reference/otlp.md",
        "docs/reference/counters.md",
        "docs/reference/rules.md",
    ]


@pytest.mark.parametrize("name", documents())
def test_every_link_within_the_project_leads_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    dead = []
    for link in links(text):
        path, _, anchor = link.partition("#")
        target = (ROOT / name).parent / path if path else ROOT / name
        if re.match(r"[a-z]+:", link):
            continue  # elsewhere: not ours to keep alive
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            dead.append(link)

    assert dead == []


def test_the_readme_begins_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    title, fence, *commands = [line.partition("  #")[0].rstrip() for line in text.splitlines() if line.strip()][:5]

    assert (title, fence) == ("# sonde", "```sh")
    assert commands == ["make run", "make test", "```"]


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs/adr/README.md").read_text(encoding="utf-8")
    missing = [path.name for path in (ROOT / "docs/adr").glob("[0-9]*.md") if f"]({path.name})" not in index]

    assert missing == []


def test_every_document_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "docs/index.md"]
    while todo:
        page = todo.pop().resolve()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        todo += [page.parent / link.partition("#")[0] for link in links(page.read_text(encoding="utf-8"))]

    missing = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md") if path.resolve() not in seen}
    assert missing == set()
