"""The Prometheus text format and OpenMetrics, checked by golden pages and by the parsers of prometheus_client."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as parse_text

from sonde.model import Frame, Histogram, Kind, Layout, MetricSpec, Series, Unit, Value
from sonde.sinks.exposition import Format, Page

parse_openmetrics: Callable[[str], Iterable[Any]] = openmetrics_parser.text_string_to_metric_families
PARSERS: tuple[tuple[Format, Callable[[str], Iterable[Any]]], ...] = (
    (Format.TEXT, parse_text),
    (Format.OPENMETRICS, parse_openmetrics),
)
GOLDEN = Path(__file__).parents[2] / "golden"

CPU = MetricSpec("node_cpu_seconds_total", Kind.COUNTER, Unit.SECONDS, "Seconds the CPUs spent.", ("cpu", "mode"))
LOAD = MetricSpec("node_load1", Kind.GAUGE, Unit.NONE, "1m load average.")
FORKS = MetricSpec("node_procs_forks", Kind.COUNTER, Unit.NONE, "A counter without the suffix.")
NETSTAT = MetricSpec("node_netstat_Tcp_InSegs", Kind.UNTYPED, Unit.NONE, "Statistic TcpInSegs.")
UNAME = MetricSpec("node_uname_info", Kind.INFO, Unit.NONE, "Who this is.", ("nodename",))
ODD_INFO = MetricSpec("node_os_version", Kind.INFO, Unit.NONE, "An info without the suffix.", ("id",))
LATENCY = MetricSpec("sonde_io_seconds", Kind.HISTOGRAM, Unit.SECONDS, "How long I/O took.", ("device",))
SIZES = MetricSpec("sonde_io_bytes", Kind.HISTOGRAM, Unit.BYTES, "How large I/O was.")
LIMIT = MetricSpec("sonde_limit", Kind.GAUGE, Unit.NONE, 'A "limit"\nof \\ two lines.', ("path",))


def frame(series: dict[Series, Value], source: str = "test") -> Frame:
    return Frame(source, 0, 0, 10**9, Layout(series), list(series.values()))


EVERYTHING = frame(
    {
        (CPU, ("0", "idle")): 214.07,
        (CPU, ("0", "user")): 3.97,
        (CPU, ("1", "idle")): 0.0,
        (LOAD, ()): 0.03,
        (FORKS, ()): 2**63,
        (NETSTAT, ()): 17,
        (UNAME, ("node01",)): 1,
        (ODD_INFO, ("debian",)): 1,
        (LATENCY, ("sda",)): Histogram((0.001, 0.01, 1), (5, 0, 2, 1), 3.25),
        (LATENCY, ("sdb",)): Histogram((0.001, 0.01, 1), (0, 0, 0, 0), 0.0),
        (SIZES, ()): Histogram((512.0, 4096.0), (1, 2, 3), 99999),
        (LIMIT, ('/a "b"\\c\nd é',)): math.inf,
        (LIMIT, ("/down",)): -math.inf,
        (LIMIT, ("/tiny",)): 5e-324,
    }
)


def text_of(*frames: Frame, form: Format = Format.TEXT) -> str:
    return Page(form).render(frames)


@pytest.mark.parametrize(
    ("form", "name"), [(Format.TEXT, "exposition.txt"), (Format.OPENMETRICS, "exposition.openmetrics")]
)
def test_a_page_of_every_kind_is_as_the_golden_one(form: Format, name: str) -> None:
    assert text_of(EVERYTHING, form=form) == (GOLDEN / name).read_text(encoding="utf-8")


def test_the_reference_parsers_read_the_values_back() -> None:
    wanted = {
        (spec.name, labels): value for spec, labels, value in EVERYTHING.samples() if not isinstance(value, Histogram)
    }

    for form, parse in PARSERS:
        samples = [sample for family in parse(text_of(EVERYTHING, form=form)) for sample in family.samples]
        found = {(s.name, tuple(s.labels.values())): s.value for s in samples}
        # prometheus_client's parser of the text format gives every counter the suffix.
        found["node_procs_forks", ()] = found.get(("node_procs_forks", ()), found.get(("node_procs_forks_total", ())))
        assert {key: found.get(key) for key in wanted} == wanted
        assert found["sonde_io_seconds_bucket", ("sda", "+Inf")] == 8
        assert found["sonde_io_seconds_count", ("sda",)] == 8
        assert found["sonde_io_bytes_sum", ()] == 99999


def test_a_counter_without_the_suffix_is_unknown_to_openmetrics_only() -> None:
    assert "# TYPE node_procs_forks counter\n" in text_of(EVERYTHING)
    assert "# TYPE node_procs_forks unknown\n" in text_of(EVERYTHING, form=Format.OPENMETRICS)


def test_an_empty_page_is_valid() -> None:
    assert text_of() == ""
    assert text_of(form=Format.OPENMETRICS) == "# EOF\n"
    assert list(parse_openmetrics(text_of(frame({}), form=Format.OPENMETRICS))) == []


def test_only_what_changed_is_different_on_the_next_page() -> None:
    page = Page(Format.TEXT)
    layout = Layout([(LOAD, ()), (NETSTAT, ())])
    pages = [
        page.render([Frame("test", 0, 0, 10**9, layout, values)])
        for values in ([1.5, 7], [1.5, 8], [math.inf, 8], [1.5, 8], [1.5, 8])
    ]

    shown = [[line.rpartition(" ")[2] for line in text.splitlines() if line[0] != "#"] for text in pages]
    assert shown == [["1.5", "7"], ["1.5", "8"], ["+Inf", "8"], ["1.5", "8"], ["1.5", "8"]]


def test_a_histogram_whose_bounds_change_is_rendered_anew() -> None:
    page = Page(Format.TEXT)
    layout = Layout([(SIZES, ())])
    for bounds in ((1.0,), (2.0, 3.0)):
        text = page.render([Frame("test", 0, 0, 10**9, layout, [Histogram(bounds, (1,) * (len(bounds) + 1), 1.0)])])

        assert text.count("_bucket") == len(bounds) + 1
        assert f'le="{bounds[-1]}"' in text


def test_the_family_of_a_later_source_is_left_out_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    page = Page(Format.TEXT)
    foreign = MetricSpec("node_load1", Kind.UNTYPED, Unit.NONE, "From a file.", ("who",))
    other = MetricSpec("backup_age_seconds", Kind.GAUGE, Unit.SECONDS, "Also from that file.")
    frames = [frame({(LOAD, ()): 0.5}, "load"), frame({(foreign, ("x",)): 9, (other, ()): 60}, "textfile")]

    with caplog.at_level(logging.WARNING):
        texts = [page.render(frames) for _ in range(2)]

    assert texts[0] == texts[1]
    assert [line for line in texts[0].splitlines() if line[0] != "#"] == ["node_load1 0.5", "backup_age_seconds 60"]
    assert page.dropped == 2
    assert caplog.text.count("left out") == 1


def test_the_family_comes_back_when_the_earlier_source_is_gone() -> None:
    page = Page(Format.TEXT)
    foreign = MetricSpec("node_load1", Kind.UNTYPED, Unit.NONE, "From a file.")
    ours, theirs = frame({(LOAD, ()): 0.5}, "load"), frame({(foreign, ()): 9}, "textfile")

    assert "node_load1 0.5" in page.render([ours, theirs])
    assert "node_load1 9" in page.render([theirs])
    assert "node_load1 0.5" in page.render([ours, theirs])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (MetricSpec("x_total", Kind.COUNTER, Unit.NONE, "c"), MetricSpec("x", Kind.GAUGE, Unit.NONE, "g")),
        (MetricSpec("x", Kind.HISTOGRAM, Unit.NONE, "h"), MetricSpec("x_count", Kind.GAUGE, Unit.NONE, "g")),
        (MetricSpec("x_bucket", Kind.GAUGE, Unit.NONE, "g"), MetricSpec("x", Kind.HISTOGRAM, Unit.NONE, "h")),
        (MetricSpec("x_info", Kind.INFO, Unit.NONE, "i"), MetricSpec("x", Kind.GAUGE, Unit.NONE, "g")),
        (MetricSpec("x", Kind.GAUGE, Unit.NONE, "g"), MetricSpec("x", Kind.GAUGE, Unit.NONE, "again")),
    ],
)
def test_names_that_would_clash_in_openmetrics_are_not_both_shown(first: MetricSpec, second: MetricSpec) -> None:
    page = Page(Format.OPENMETRICS)
    value = {Kind.HISTOGRAM: Histogram((1.0,), (1, 0), 1.0)}
    both = frame({(first, ()): value.get(first.kind, 1), (second, ()): value.get(second.kind, 1)})

    families = list(parse_openmetrics(page.render([both])))

    assert len(families) == 1
    assert page.dropped == 1


def test_unwanted_metrics_are_left_out_without_being_counted() -> None:
    page = Page(Format.TEXT, wanted=lambda spec: spec is not CPU)

    assert "node_cpu" not in page.render([EVERYTHING])
    assert "node_load1 0.03\n" in page.render([EVERYTHING])
    assert page.dropped == 0


@pytest.mark.parametrize("values", [[1], [1, 2, 3], [None, 2], ["x", 2]])
def test_a_source_that_breaks_its_promise_hides_no_other(
    values: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    page = Page(Format.OPENMETRICS)
    layout = Layout([(FORKS, ()), (NETSTAT, ())])
    good = frame({(LOAD, ()): 0.5}, "load")
    broken = Frame("broken", 0, 0, 10**9, layout, values)  # type: ignore[arg-type]

    texts = [page.render([broken, good]) for _ in range(2)]
    healed = page.render([Frame("broken", 0, 0, 10**9, layout, [5, 6]), good])

    assert [family.name for family in parse_openmetrics(texts[1])] == ["node_load1"]
    assert caplog.text.count("cannot be shown") == 1
    assert "node_procs_forks 5\n" in healed
    assert "node_netstat_Tcp_InSegs 6\n" in healed


def test_a_large_source_comes_in_blocks_and_declares_a_family_once() -> None:
    many = frame({(CPU, (str(cpu), mode)): cpu + 0.5 for cpu in range(2500) for mode in ("idle", "user")})
    page = Page(Format.OPENMETRICS)

    count, blocks = page.blocks([many])
    texts = list(blocks)

    assert count == 5000
    assert len(texts) == 4  # of 2,000, and the end
    (family,) = parse_openmetrics("".join(texts))
    assert sum(sample.value for sample in family.samples) == sum(many.values)  # type: ignore[arg-type]


label_values = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(0, 2**64) | st.floats(allow_nan=False)


@settings(max_examples=150)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a_total", "b", "c_info", "d"]), st.sampled_from(Kind), label_values, st.text(max_size=9)
        ),
        max_size=6,
        unique_by=lambda item: item[0],
    ),
    st.data(),
)
def test_any_names_labels_and_values_survive_both_formats(
    items: list[tuple[str, Kind, str, str]], data: st.DataObject
) -> None:
    series: dict[Series, Value] = {}
    for name, kind, label, help_ in items:
        spec = MetricSpec(name, kind, Unit.NONE, help_.replace("\r", "").encode("utf-8", "replace").decode(), ("l",))
        if kind is Kind.HISTOGRAM:
            continue
        series[spec, (label.replace("\r", ""),)] = data.draw(st.just(1) if kind is Kind.INFO else numbers.map(abs))

    for form, parse in PARSERS:
        page = Page(form)
        for _ in range(2):
            found = [s for family in parse(page.render([frame(series)])) for s in family.samples]
            assert {(s.name.removesuffix("_total"), s.labels["l"]): s.value for s in found} == {
                (spec.name.removesuffix("_total"), labels[0]): value for (spec, labels), value in series.items()
            }
