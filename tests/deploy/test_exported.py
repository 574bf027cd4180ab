"""Every number that a panel or an alert asks for is one that a real server has."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest
from prometheus_client.parser import text_string_to_metric_families

from service.app import create_app
from service.settings import Settings
from tests.deploy.files import Expression, expressions, parts
from tests.live import Live, live_server
from tests.tiny_model import write_tiny_gguf

EXPRESSIONS = tuple(expressions())
ADDED = frozenset({"job", "instance", "namespace", "pod"})
"""Labels that Prometheus adds to each series that it reads; the last two where its operator tells it what to read."""
ITS_OWN: dict[str, frozenset[str]] = {"up": frozenset(), "ALERTS": frozenset({"alertname", "alertstate"})}
"""Series that Prometheus makes itself."""
OPEN = frozenset({*ADDED, "model", "alertname", "alertstate", "status", "route"})
"""Labels whose values are not a closed set that is there from the start; routes are compared apart."""

Exported = dict[str, dict[str, set[str]]]
"""For each name of a sample, its labels and the values that they have."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    model: Path = write_tiny_gguf(tmp_path_factory.mktemp("served") / "tiny.gguf")
    with live_server(Settings.load({}, {"model": str(model), "kv_cache_bytes": 4 << 20})) as live:
        yield live


@pytest.fixture(scope="module")
def exported(server: Live) -> Exported:
    httpx.post(f"{server.url}/generate", json={"prompt": "a", "max_new_tokens": 1}).raise_for_status()
    found: Exported = {name: {label: set() for label in labels} for name, labels in ITS_OWN.items()}
    for family in text_string_to_metric_families(httpx.get(f"{server.url}/metrics").text):
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


def selectors(expression: Any) -> list[Any]:
    return parts(expression, lambda part: isinstance(part, promql_parser.VectorSelector))


each_expression = pytest.mark.parametrize("expression", EXPRESSIONS, ids=[each.place for each in EXPRESSIONS])


def test_alerts_panels_notes_and_choices_are_all_looked_at() -> None:
    kinds = {"alert" if each.place.startswith("Tane") else each.place.partition(" ")[0] for each in EXPRESSIONS}

    assert {"alert", "panel", "notes", "choice", "adapter"} == kinds


@each_expression
def test_every_series_is_exported(expression: Expression, exported: Exported) -> None:
    named = {selector.name for selector in selectors(expression.parsed)}

    assert named
    assert set() == named - exported.keys()


@each_expression
def test_every_label_that_is_matched_is_one_of_the_series(expression: Expression, exported: Exported) -> None:
    unknown = [
        (selector.name, matcher.name)
        for selector in selectors(expression.parsed)
        for matcher in selector.matchers.matchers
        if matcher.name not in exported[selector.name].keys() | ADDED
    ]

    assert [] == unknown


@each_expression
def test_every_value_that_is_matched_is_one_that_the_label_has(expression: Expression, exported: Exported) -> None:
    unknown = [
        (selector.name, matcher.name, value)
        for selector in selectors(expression.parsed)
        for matcher in selector.matchers.matchers
        if matcher.name not in OPEN
        for value in alternatives(matcher)
        if value not in exported[selector.name][matcher.name]
    ]

    assert [] == unknown


@each_expression
def test_every_route_that_is_matched_is_one_of_the_server(expression: Expression, server: Live) -> None:
    routes = create_app(server.service).state.methods.keys()
    unknown = [
        value
        for selector in selectors(expression.parsed)
        for matcher in selector.matchers.matchers
        if matcher.name == "route"
        for value in alternatives(matcher)
        if value not in routes
    ]

    assert [] == unknown


@each_expression
def test_every_label_that_is_grouped_by_is_one_of_each_series_inside(
    expression: Expression, exported: Exported
) -> None:
    unknown = [
        (selector.name, label)
        for inside, labels in groupings(expression)
        for selector in selectors(inside)
        for label in labels
        if label not in exported[selector.name].keys() | ADDED
    ]

    assert [] == unknown


@each_expression
def test_a_quantile_is_taken_of_buckets(expression: Expression) -> None:
    quantiles = [call for call in expression.find(promql_parser.Call) if call.func.name == "histogram_quantile"]
    for call in quantiles:
        assert "le" in call.args[1].modifier.labels
        assert all(selector.name.endswith("_bucket") for selector in selectors(call.args[1]))


@each_expression
def test_only_what_grows_has_a_rate(expression: Expression) -> None:
    rates = [call for call in expression.find(promql_parser.Call) if call.func.name in ("rate", "increase")]
    names = [selector.name for call in rates for selector in selectors(call)]

    assert [] == [name for name in names if not re.search(r"_(total|bucket|sum|count)$", name)]


def groupings(expression: Expression) -> Iterator[tuple[Any, list[str]]]:
    """Each part that groups by labels or matches on them, and the labels."""
    for aggregate in expression.find(promql_parser.AggregateExpr):
        if aggregate.modifier is not None:
            yield aggregate.expr, aggregate.modifier.labels
    for binary in expression.find(promql_parser.BinaryExpr):
        if binary.modifier is not None and binary.modifier.matching is not None:
            yield binary, binary.modifier.matching.labels


def alternatives(matcher: Any) -> list[str]:
    """The values that a matcher names; of an expression, each of its alternatives."""
    is_expression = matcher.op in (promql_parser.MatchOp.Re, promql_parser.MatchOp.NotRe)
    values: list[str] = matcher.value.split("|") if is_expression else [matcher.value]
    return values
