"""The dashboard is one that Grafana shows: laid out without overlaps, bound to the chosen source, with named units."""

import re
from itertools import combinations
from typing import Any

import promql_parser
import pytest
import yaml

from tests.deploy.files import COMPOSE, GRAFANA, Expression, dashboard, panels

WIDTH = 24
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
PANELS = panels()
NAMES = [panel["title"] for panel in PANELS]

each_panel = pytest.mark.parametrize("panel", PANELS, ids=NAMES)


def test_every_panel_has_a_number_of_its_own() -> None:
    numbers = [panel["id"] for panel in dashboard()["panels"]]

    assert sorted(set(numbers)) == sorted(numbers)


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(one[at] < other[at] + other[size] and other[at] < one[at] + one[size] for at, size in ("xw", "yh"))


def test_no_two_panels_overlap() -> None:
    assert [] == [
        (one["title"], other["title"])
        for one, other in combinations(dashboard()["panels"], 2)
        if overlap(one["gridPos"], other["gridPos"])
    ]


def test_every_panel_fits_the_width() -> None:
    assert all(0 <= panel["gridPos"]["x"] <= WIDTH - panel["gridPos"]["w"] for panel in dashboard()["panels"])


@each_panel
def test_a_panel_asks_the_chosen_source(panel: dict[str, Any]) -> None:
    assert [DATASOURCE] * (1 + len(panel["targets"])) == [
        panel["datasource"],
        *(target["datasource"] for target in panel["targets"]),
    ]


@each_panel
def test_a_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    assert panel["description"]
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@each_panel
def test_a_panel_shows_the_chosen_servers(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        for selector in Expression(panel["title"], target["expr"]).find(promql_parser.VectorSelector):
            assert "instance" in [matcher.name for matcher in selector.matchers.matchers]


@each_panel
def test_a_legend_names_labels_that_are_left(panel: dict[str, Any]) -> None:
    for target in panel["targets"]:
        named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        aggregates = Expression(panel["title"], target["expr"]).find(promql_parser.AggregateExpr)
        for aggregate in aggregates if named else ():
            assert named <= set(aggregate.modifier.labels)


def test_a_server_a_model_and_a_source_can_be_chosen() -> None:
    assert ["datasource", "instance", "model"] == [each["name"] for each in dashboard()["templating"]["list"]]


def provisioned(name: str) -> Any:
    return yaml.safe_load((GRAFANA / "provisioning" / name).read_text(encoding="utf-8"))


def test_the_source_is_the_composed_prometheus() -> None:
    (source,) = provisioned("datasources/prometheus.yml")["datasources"]

    assert ("prometheus", "http://prometheus:9090", True) == (source["type"], source["url"], source["isDefault"])


def test_the_dashboard_lies_where_grafana_looks() -> None:
    grafana = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]["grafana"]
    (provider,) = provisioned("dashboards/tane.yml")["providers"]
    folder = provider["options"]["path"]

    assert f"./grafana/dashboards:{folder}:ro" in grafana["volumes"]
    assert f"{folder}/tane.json" == grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
