"""The deployed files, read: rules, panels, and the PromQL in them, parsed.

Knows the forms of the files, and nothing of what the server exports.
Always: every expression that Prometheus or Grafana would run is listed.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import promql_parser
import yaml

from tests.source_files import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
PROMETHEUS = DEPLOY / "prometheus"
GRAFANA = DEPLOY / "grafana"
KUBERNETES = DEPLOY / "kubernetes"
GRAFANA_VARIABLES = {"$__rate_interval": "1m", "$instance": "a", "$model": "m"}
"""What stands in an expression until a person chooses, and something that it may become."""


@dataclass(frozen=True, slots=True)
class Expression:
    """PromQL, and where it stands."""

    place: str
    text: str

    @property
    def parsed(self) -> Any:
        text = self.text
        for name, value in GRAFANA_VARIABLES.items():
            text = text.replace(name, value)
        return promql_parser.parse(text)

    def find(self, kind: type[Any]) -> list[Any]:
        """Every part of this kind, outermost first."""
        return parts(self.parsed, lambda part: isinstance(part, kind))


def parts(expression: Any, wanted: Callable[[Any], bool]) -> list[Any]:
    found: list[Any] = []

    def visit(part: Any) -> None:
        if wanted(part):
            found.append(part)

    promql_parser.walk(expression, visit)
    return found


@cache
def alerts() -> tuple[dict[str, Any], ...]:
    groups = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return tuple(rule for group in groups for rule in group["rules"])


@cache
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GRAFANA / "dashboards/tane.json").read_text(encoding="utf-8"))
    return found


@cache
def adapter_rules() -> tuple[dict[str, Any], ...]:
    """What the adapter makes measures for the autoscaler of."""
    text = (KUBERNETES / "prometheus/adapter-rules.yaml").read_text(encoding="utf-8")
    return tuple(yaml.safe_load(text)["rules"]["custom"])


def adapter_query(rule: dict[str, Any]) -> str:
    """The rule's query as the adapter writes it out for one pod."""
    text: str = rule["metricsQuery"]
    for name, value in (
        ("<<.Series>>", rule["name"]["matches"]),
        ("<<.LabelMatchers>>", 'namespace="n",pod="p"'),
        ("<<.GroupBy>>", "pod"),
    ):
        text = text.replace(name, value)
    return text


def panels() -> list[dict[str, Any]]:
    """Those that show something: rows only part them."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[Expression]:
    """Of every alert, panel, note, choice and rule of the adapter."""
    for rule in alerts():
        yield Expression(rule["alert"], rule["expr"])
    for rule in adapter_rules():
        yield Expression(f"adapter {rule['name']['as']}", rule["seriesQuery"])
        yield Expression(f"adapter query {rule['name']['as']}", adapter_query(rule))
    for panel in panels():
        for target in panel["targets"]:
            yield Expression(f"panel {panel['id']}, {panel['title']}", target["expr"])
    for note in dashboard()["annotations"]["list"]:
        yield Expression(f"notes {note['name']}", note["expr"])
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            selected = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert selected is not None
            yield Expression(f"choice {variable['name']}", f"group by ({selected[2]}) ({selected[1]})")
