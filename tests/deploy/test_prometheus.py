"""Prometheus reads its files, each alert fires and holds still, and each is explained."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tests.deploy.files import COMPOSE, PROMETHEUS, Expression, alerts, expressions
from tests.source_files import ROOT

ALERTS = tuple(rule["alert"] for rule in alerts())
OPERATING = ROOT / "docs/operating.md"


@pytest.fixture(scope="module")
def promtool() -> str:
    """Where Prometheus's own checker is.

    `.ci/run` brings it, and fails without it; elsewhere the tests that need it say that they did not run.
    """
    found = shutil.which("promtool", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if found is None and os.environ.get("CI"):
        pytest.fail("promtool is not here: `make promtool` brings it")
    if found is None:
        pytest.skip("promtool is not here: `make promtool` brings it")
    return found


@pytest.mark.parametrize(
    "words",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "--lint=all", "--lint-fatal", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_finds_nothing_wrong(promtool: str, words: tuple[str, ...]) -> None:
    answer = subprocess.run([promtool, *words], cwd=PROMETHEUS, capture_output=True, text=True, check=False)

    assert (0, "") == (answer.returncode, answer.stderr)


def cases() -> list[dict[str, Any]]:
    tests = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text(encoding="utf-8"))["tests"]
    return [case for test in tests for case in test["alert_rule_test"]]


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_is_shown_firing_and_holding_still(alert: str) -> None:
    assert {True, False} == {bool(case.get("exp_alerts")) for case in cases() if case["alertname"] == alert}


def test_every_expression_can_be_read_without_promtool() -> None:
    assert all(isinstance(each.parsed, promql_parser.Expr) for each in expressions())


def test_names_of_alerts_are_their_own() -> None:
    assert len(ALERTS) == len(set(ALERTS))


@pytest.mark.parametrize("rule", alerts(), ids=ALERTS)
def test_an_alert_says_how_bad_it_is_what_is_wrong_and_what_to_do(rule: dict[str, Any]) -> None:
    headings = re.findall(r"^#+ (\w+)$", OPERATING.read_text(encoding="utf-8"), flags=re.MULTILINE)

    assert rule["labels"]["severity"] in ("critical", "warning")
    assert {"summary", "description", "runbook"} == rule["annotations"].keys()
    assert f"docs/operating.md#{rule['alert'].lower()}" == rule["annotations"]["runbook"]
    assert rule["alert"] in headings


@pytest.mark.parametrize("rule", alerts(), ids=ALERTS)
def test_an_alert_keeps_the_labels_that_its_text_names(rule: dict[str, Any]) -> None:
    named = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["description"]))
    grouped = Expression(rule["alert"], rule["expr"]).find(promql_parser.AggregateExpr)

    assert all(named <= set(each.modifier.labels) for each in grouped)


def test_it_reads_the_service_that_is_composed() -> None:
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
    targets = {job["job_name"]: job["static_configs"][0]["targets"] for job in config["scrape_configs"]}
    tane = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]["tane"]

    assert [f"tane:{tane['environment']['TANE_METRICS_PORT']}"] == targets["tane"]
    assert ["alerts.yml"] == config["rule_files"]
