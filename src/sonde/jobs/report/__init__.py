"""The report of a recording, as text, as a page, as a document, as pictures: the same findings and the same figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sonde.jobs.recording import Recording
from sonde.jobs.rules import Judgement, judge, load_rules, verdict
from sonde.jobs.summary import Summary, summarise


class Report(NamedTuple):
    summary: Summary
    judgement: Judgement
    verdict: str


def make_report(
    recording: Recording, *, rules: str | None = None, progress: Callable[[float, str], None] | None = None
) -> Report:
    """The summary judged by the rules, with a site's changes when `rules` names its file."""
    known = load_rules(rules)
    summary = summarise(recording, progress)
    judgement = judge(summary, known)
    return Report(summary, judgement, verdict(summary, judgement))
