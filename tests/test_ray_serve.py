"""What Ray is told of the replicas, and they of their options, tried without Ray."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.queued_tokens import METRIC, QueuedTokens
from deploy.replicas import POLICY, ROUTER, WITHOUT_MEANING, Cluster, deployment_options, options_of_replicas
from service import replica
from service.settings import Settings, SettingsError
from tests.source_files import ROOT

FIXED = Cluster(min_replicas=2, max_replicas=2)


def settings_of(**variables: str) -> Settings:
    return Settings.load({"TANE_INSECURE": "true", **variables}, {})


def options(cluster: Cluster = FIXED, threads: int = 1, drain_s: float = 30.0) -> dict[str, Any]:
    return deployment_options(cluster, threads=threads, drain_s=drain_s)


def test_a_replica_computes_on_one_thread() -> None:
    assert 1 == options_of_replicas(settings_of())["threads"]


def test_a_replica_has_as_many_threads_as_are_asked_for_and_as_many_processors() -> None:
    threads = options_of_replicas(settings_of(TANE_THREADS="3"))["threads"]

    assert 3 == threads == options(threads=threads)["ray_actor_options"]["num_cpus"]


def test_a_replica_is_given_what_was_given_and_no_defaults() -> None:
    given = options_of_replicas(settings_of(TANE_MODEL="m.gguf", TANE_VARIANT="a=x b=y"))

    assert {"model": "m.gguf", "variant": ("a=x", "b=y"), "insecure": True, "threads": 1} == given


def test_what_a_replica_is_given_wins_over_the_environment_it_comes_to() -> None:
    given = options_of_replicas(settings_of(TANE_KV_CACHE_BYTES="2097152"))

    assert 2097152 == Settings.load({"TANE_KV_CACHE_BYTES": "4194304"}, given).kv_cache_bytes


@pytest.mark.parametrize("name", WITHOUT_MEANING)
def test_an_option_of_a_server_that_listens_itself_is_refused_by_name(name: str) -> None:
    variable = f"TANE_{name.upper()}"

    with pytest.raises(SettingsError, match=f"{variable} means nothing here"):
        options_of_replicas(settings_of(**{variable: "9"}))


def test_without_keys_nobody_is_served_unless_anyone_may_call() -> None:
    with pytest.raises(SettingsError, match="TANE_KEYS_FILE must name a file of keys"):
        options_of_replicas(Settings.load({}, {}))


def test_keys_are_enough() -> None:
    assert "keys" == options_of_replicas(Settings.load({"TANE_KEYS_FILE": "keys"}, {}))["keys_file"]


def test_requests_that_belong_together_are_sent_to_one_replica() -> None:
    assert {"request_router_class": ROUTER} == options()["request_router_config"]


def test_running_requests_get_the_time_that_they_get_elsewhere() -> None:
    assert 45 < options(drain_s=45)["graceful_shutdown_timeout_s"] < 60


def test_a_fixed_number_of_replicas_is_not_scaled() -> None:
    assert (2, False) == (options()["num_replicas"], "autoscaling_config" in options())


def test_replicas_are_scaled_by_what_waits() -> None:
    scaling = options(Cluster(max_replicas=8, queued_tokens=1000))["autoscaling_config"]

    assert (1, 8) == (scaling["min_replicas"], scaling["max_replicas"])
    assert {"policy_function": POLICY, "policy_kwargs": {"per_replica": 1000}} == scaling["policy"]


def test_the_policy_that_is_named_is_there() -> None:
    module, _, name = POLICY.rpartition(".")

    assert QueuedTokens is getattr(import_module(module), name)


def test_the_policy_reads_what_replicas_tell() -> None:
    assert METRIC == replica.QUEUED_TOKENS


@dataclass(frozen=True)
class Context:
    aggregated_metrics: Mapping[str, Mapping[str, float]] | None
    target_num_replicas: int = 3


@pytest.mark.parametrize(
    ("told", "expected"),
    [({"a": 500.0}, 0.5), ({"a": 3000.0, "b": 1000.0}, 4.0), ({"a": 0.0, "b": 0.0}, 0.0), ({}, 3)],
)
def test_there_is_a_replica_for_every_so_many_tokens_that_wait(told: dict[str, float], expected: float) -> None:
    wanted, _ = QueuedTokens(per_replica=1000)(Context({METRIC: told}))

    assert expected == wanted


@pytest.mark.parametrize("metrics", [None, {}])
def test_while_no_replica_has_told_how_much_waits_their_number_stays(metrics: dict[str, Any] | None) -> None:
    wanted, _ = QueuedTokens(per_replica=1000)(Context(metrics))

    assert 3 == wanted


def test_the_file_for_a_cluster_names_what_is_built_and_what_it_takes() -> None:
    (application,) = yaml.safe_load((ROOT / "deploy" / "ray_serve.yaml").read_text())["applications"]
    module, _, name = application["import_path"].partition(":")
    tree = ast.parse((ROOT / Path(*module.split("."))).with_suffix(".py").read_text())

    assert Cluster(**application["args"]).min_replicas >= 2
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    Settings.load(application["runtime_env"]["env_vars"], {})
