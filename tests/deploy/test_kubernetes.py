"""The manifests are valid, and agree with one another and with the server that they run."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from service import __version__
from service.app import create_app
from service.guard import WATCHED_PATHS
from service.keys import KeysError, read_keys
from service.server import CLOSE_S
from service.settings import Settings, SettingsError
from tests.container.dockerfile import pairs, read_stages
from tests.deploy.files import KUBERNETES, adapter_rules, alerts
from tests.deploy.manifests import (
    PROMETHEUS,
    VARIANTS,
    Manifest,
    built,
    container,
    in_bytes,
    of_kind,
    only,
    pod,
    read,
    variables,
)
from tests.fake_runtime import make_service

VERSIONS = ("1.30", "1.37")
"""Of Kubernetes: the oldest that has all that is used, and the newest that is known."""
NGINX = "nginx.ingress.kubernetes.io/"
MONITOR_FIELDS = {"port", "path", "interval", "scrapeTimeout"}
each_variant = pytest.mark.parametrize("folder", VARIANTS, ids=lambda folder: folder.name)


def known_to_kubernetes() -> list[Manifest]:
    """Every manifest of every variant, once, but for the one kind that Kubernetes itself does not have."""
    found: list[Manifest] = []
    for manifest in (each for folder in VARIANTS for each in built(folder)):
        if manifest["kind"] != "ServiceMonitor" and manifest not in found:
            found.append(manifest)
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "manifest", known_to_kubernetes(), ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_every_manifest_is_valid(manifest: Manifest, version: str) -> None:
    assert version == kubernetes_validate.validate(manifest, version, strict=True)


def test_a_mistake_in_a_manifest_would_be_found() -> None:
    deployment = yaml.safe_load(yaml.safe_dump(only("Deployment")))
    deployment["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)


def test_the_example_of_a_secret_is_valid() -> None:
    (secret,) = read(KUBERNETES / "keys.example.yaml")

    kubernetes_validate.validate(secret, VERSIONS[0], strict=True)


@each_variant
def test_kustomize_makes_of_it_what_is_looked_at_here(folder: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not here")
    made = subprocess.run([kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=True).stdout

    def by_name(manifests: Any) -> list[tuple[str, str, Manifest]]:
        return sorted(((each["kind"], each["metadata"]["name"], each) for each in manifests), key=lambda each: each[:2])

    assert by_name(built(folder)) == by_name(yaml.safe_load_all(made))


@each_variant
def test_everything_is_in_the_namespace(folder: Path) -> None:
    (namespace,) = of_kind("Namespace", folder)
    places = {each["metadata"].get("namespace") for each in built(folder) if each["kind"] != "Namespace"}

    assert {namespace["metadata"]["name"]} == places


def test_no_secret_is_part_of_it() -> None:
    assert [] == [each for folder in VARIANTS for each in built(folder) if each["kind"] == "Secret"]


# The server that is run


def test_the_image_is_this_version_and_runs_as_its_own_user() -> None:
    user, _, group = dict(read_stages()[-1])["USER"].partition(":")
    context = pod()["securityContext"]

    assert f"tane:{__version__}" == container()["image"]
    assert (int(user), int(group)) == (context["runAsUser"], context["runAsGroup"])


def test_every_variable_is_an_option_of_the_server() -> None:
    settings = Settings.load(variables(), {})

    assert (1 << 30, 9100, "json") == (settings.kv_cache_bytes, settings.metrics_port, settings.log_format)


def test_the_variables_that_kubernetes_would_add_for_services_are_left_out() -> None:
    with pytest.raises(SettingsError, match="TANE_SERVICE_HOST is no option"):
        Settings.load({**variables(), "TANE_SERVICE_HOST": "10.0.0.1"}, {})

    assert pod()["enableServiceLinks"] is False


def test_ports_are_those_that_the_server_listens_on() -> None:
    image = {name: value for kind, rest in read_stages()[-1] if kind == "ENV" for name, value in pairs(rest).items()}
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}

    assert {"http": int(image["TANE_PORT"]), "metrics": int(variables()["TANE_METRICS_PORT"])} == ports


@pytest.mark.parametrize("name", ["startupProbe", "livenessProbe", "readinessProbe"])
def test_a_probe_asks_for_health_at_the_port_that_callers_cannot_fill(name: str) -> None:
    asked = container()[name]["httpGet"]

    assert {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}[name] == asked["path"]
    assert asked["path"] in WATCHED_PATHS
    assert "metrics" == asked["port"]


def test_there_is_time_to_answer_what_runs() -> None:
    settings = Settings.load(variables(), {})
    before_the_signal = container()["lifecycle"]["preStop"]["sleep"]["seconds"]
    needed = before_the_signal + max(settings.drain_s, settings.lame_duck_s) + CLOSE_S

    assert settings.lame_duck_s > 0
    assert needed < pod()["terminationGracePeriodSeconds"]


def test_no_one_is_sent_to_a_pod_when_it_is_signalled() -> None:
    """Readiness is seen to be gone, at the latest, after this; endpoints follow within seconds."""
    probe = container()["readinessProbe"]

    assert container()["lifecycle"]["preStop"]["sleep"]["seconds"] >= probe["periodSeconds"] * probe["failureThreshold"]


def test_memory_has_no_more_than_is_asked_for_and_holds_the_cache() -> None:
    resources = container()["resources"]
    settings = Settings.load(variables(), {})
    weights = 200 << 20

    assert resources["requests"]["memory"] == resources["limits"]["memory"]
    assert settings.kv_cache_bytes + weights <= 0.75 * in_bytes(resources["limits"]["memory"])


def test_there_are_as_many_threads_as_processors_are_asked_for() -> None:
    resources = container()["resources"]

    assert int(resources["requests"]["cpu"]) == Settings.load(variables(), {}).threads
    assert "cpu" not in resources["limits"]


def test_the_keys_are_mounted_as_a_folder_where_the_server_reads_them() -> None:
    (mount,) = [each for each in container()["volumeMounts"] if each["name"] == "keys"]
    (secret,) = [volume["secret"] for volume in pod()["volumes"] if volume["name"] == "keys"]
    (example,) = read(KUBERNETES / "keys.example.yaml")

    assert f"{mount['mountPath']}/{next(iter(example['stringData']))}" == variables()["TANE_KEYS_FILE"]
    assert (example["metadata"]["name"], 0o440) == (secret["secretName"], secret["defaultMode"])
    assert mount["readOnly"] is True
    assert "subPath" not in mount


def test_nothing_can_be_served_with_the_example_of_keys(tmp_path: Path) -> None:
    (example,) = read(KUBERNETES / "keys.example.yaml")
    (tmp_path / "keys").write_text(example["stringData"]["keys"])

    with pytest.raises(KeysError, match="holds none"):
        read_keys(tmp_path / "keys")


# What stands around it


def selected(selector: dict[str, str]) -> bool:
    """Whether the pods have these labels."""
    labels = only("Deployment")["spec"]["template"]["metadata"]["labels"]
    return bool(selector) and selector.items() <= labels.items()


def test_services_budgets_and_spread_are_of_the_pods() -> None:
    selectors = [
        only("Deployment")["spec"]["selector"]["matchLabels"],
        only("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        *(each["spec"]["selector"] for each in of_kind("Service")),
        *(each["labelSelector"]["matchLabels"] for each in pod()["topologySpreadConstraints"]),
    ]

    assert all(selected(selector) for selector in selectors)


def test_services_lead_to_ports_of_the_pod() -> None:
    known = {port["name"] for port in container()["ports"]}

    assert {port["targetPort"] for each in of_kind("Service") for port in each["spec"]["ports"]} == known


def backends() -> dict[str, dict[str, Any]]:
    """The only service behind each Ingress."""
    found = {}
    for each in of_kind("Ingress"):
        ((path,),) = [rule["http"]["paths"] for rule in each["spec"]["rules"]]
        found[each["metadata"]["name"]] = path["backend"]["service"]
    return found


def test_ingresses_lead_to_services_and_their_ports() -> None:
    ports = {each["metadata"]["name"]: {port["name"] for port in each["spec"]["ports"]} for each in of_kind("Service")}

    assert {"tane", "tane-sessions"} == {service["name"] for service in backends().values()}
    assert all(service["port"]["name"] in ports[service["name"]] for service in backends().values())


def annotations(name: str) -> dict[str, str]:
    (ingress,) = [each for each in of_kind("Ingress") if each["metadata"]["name"] == name]
    return {key.removeprefix(NGINX): value for key, value in ingress["metadata"]["annotations"].items()}


def test_requests_of_a_session_stay_with_a_pod_and_others_are_shared_out() -> None:
    """The second Ingress is a canary of the first, at the same place and on a service of its own: so it must be."""
    places = [[rule["host"] for rule in each["spec"]["rules"]] for each in of_kind("Ingress")]

    assert "upstream-hash-by" not in annotations("tane")
    assert {
        "canary": "true",
        "canary-by-header": "x-session-id",
        "canary-by-header-pattern": ".+",
        "upstream-hash-by": "$http_x_session_id",
    } == annotations("tane-sessions")
    assert places[0] == places[1]


def test_the_ingress_takes_bodies_as_large_as_the_server_does() -> None:
    megabytes = re.fullmatch(r"(\d+)m", annotations("tane")["proxy-body-size"])

    assert megabytes is not None
    assert int(megabytes[1]) << 20 == Settings().max_body_bytes


def test_nothing_comes_in_or_goes_out_that_no_rule_allows() -> None:
    (deny,) = [each["spec"] for each in of_kind("NetworkPolicy") if each["metadata"]["name"] == "default-deny"]

    assert {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]} == deny


def test_the_gateway_reaches_the_service_monitoring_the_metrics_and_the_pods_no_one() -> None:
    (policy,) = [each["spec"] for each in of_kind("NetworkPolicy") if each["metadata"]["name"] == "tane"]
    opened = {
        source["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]: [
            each["port"] for each in rule["ports"]
        ]
        for rule in policy["ingress"]
        for source in rule["from"]
    }

    assert selected(policy["podSelector"]["matchLabels"])
    assert {"ingress-nginx": ["http"], "monitoring": ["metrics"]} == opened
    assert (["Ingress", "Egress"], []) == (policy["policyTypes"], policy["egress"])


@each_variant
def test_the_autoscaler_scales_the_deployment(folder: Path) -> None:
    spec = only("HorizontalPodAutoscaler", folder)["spec"]
    target, deployment = spec["scaleTargetRef"], only("Deployment")

    assert (target["apiVersion"], target["kind"], target["name"]) == (
        deployment["apiVersion"],
        deployment["kind"],
        deployment["metadata"]["name"],
    )
    assert "replicas" not in deployment["spec"]
    assert only("PodDisruptionBudget")["spec"]["maxUnavailable"] < spec["minReplicas"] < spec["maxReplicas"]


def test_with_prometheus_the_autoscaler_asks_for_what_the_adapter_makes() -> None:
    (measure,) = only("HorizontalPodAutoscaler", PROMETHEUS)["spec"]["metrics"]
    rules = {rule["name"]["as"]: rule for rule in adapter_rules()}

    assert [measure["pods"]["metric"]["name"]] == list(rules)
    assert {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}} == rules["tane_reserved_tokens"][
        "resources"
    ]["overrides"]


def test_the_monitor_reads_each_pod_once_at_its_port_for_metrics() -> None:
    monitor = only("ServiceMonitor", PROMETHEUS)
    labels = monitor["spec"]["selector"]["matchLabels"]
    (service,) = [each for each in of_kind("Service") if labels.items() <= each["metadata"]["labels"].items()]
    (endpoint,) = monitor["spec"]["endpoints"]

    assert ("monitoring.coreos.com/v1", {"jobLabel", "selector", "endpoints"}) == (
        monitor["apiVersion"],
        monitor["spec"].keys(),
    )
    assert MONITOR_FIELDS == endpoint.keys()
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["path"] in create_app(make_service()).state.methods


def test_the_monitors_job_is_the_one_that_the_alerts_know() -> None:
    monitor = only("ServiceMonitor", PROMETHEUS)
    job = only("Deployment")["metadata"]["labels"][monitor["spec"]["jobLabel"]]

    assert any(f'job="{job}"' in rule["expr"] for rule in alerts())


def test_the_documents_commands_name_what_is_there() -> None:
    text = (KUBERNETES.parent.parent / "docs/operating.md").read_text(encoding="utf-8")
    folders = re.findall(r"--kustomize (\S+)", text)

    assert [os.path.relpath(folder, KUBERNETES.parent.parent) for folder in VARIANTS] == folders
