"""The Kubernetes manifests as the cluster gets them: every resource that a kustomization names, with its patches.

Knows the few forms of kustomization that the project's own files use. Always: a field that is not known here is an
error, so that nothing that kustomize would do goes unseen.
"""

import json
import re
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.files import KUBERNETES

BASE = KUBERNETES / "base"
PROMETHEUS = KUBERNETES / "prometheus"
VARIANTS = (BASE, PROMETHEUS)
KNOWN = {"apiVersion", "kind", "namespace", "labels", "resources", "images", "patches"}
BYTES = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}

Manifest = dict[str, Any]


def read(path: Path) -> list[Manifest]:
    """The documents of a file; what an anchor repeats stands in each place for itself."""
    return [json.loads(json.dumps(each)) for each in yaml.safe_load_all(path.read_text(encoding="utf-8")) if each]


@cache
def built(folder: Path) -> tuple[Manifest, ...]:
    """What `kubectl kustomize` makes of the folder."""
    (rules,) = read(folder / "kustomization.yaml")
    assert rules.keys() <= KNOWN, "the kustomization has a field that nobody looks at here"
    found: list[Manifest] = []
    for name in rules["resources"]:
        path = (folder / name).resolve()
        found += deepcopy(built(path)) if path.is_dir() else read(path)
    for manifest in found:
        _complete(manifest, rules)
    for patch in rules.get("patches", ()):
        _apply(patch, folder, found)
    return tuple(found)


def _complete(manifest: Manifest, rules: dict[str, Any]) -> None:
    if (namespace := rules.get("namespace")) and manifest["kind"] != "Namespace":
        manifest["metadata"]["namespace"] = namespace
    for labels in rules.get("labels", ()):
        manifest["metadata"].setdefault("labels", {}).update(labels["pairs"])
    tags = {image["name"]: image["newTag"] for image in rules.get("images", ())}
    for container in manifest["spec"]["template"]["spec"]["containers"] if manifest["kind"] == "Deployment" else ():
        if container["image"] in tags:
            container["image"] += f":{tags[container['image']]}"


def _apply(patch: dict[str, Any], folder: Path, manifests: list[Manifest]) -> None:
    target = patch["target"]
    (manifest,) = [
        each for each in manifests if (each["kind"], each["metadata"]["name"]) == (target["kind"], target["name"])
    ]
    for step in yaml.safe_load((folder / patch["path"]).read_text(encoding="utf-8")):
        assert "replace" == step["op"]
        *parents, last = step["path"].removeprefix("/").split("/")
        holder = manifest
        for name in parents:
            holder = holder[name]
        assert last in holder, "what is replaced is there"
        holder[last] = step["value"]


def of_kind(kind: str, folder: Path = BASE) -> list[Manifest]:
    return [each for each in built(folder) if each["kind"] == kind]


def only(kind: str, folder: Path = BASE) -> Manifest:
    (found,) = of_kind(kind, folder)
    return found


def pod() -> dict[str, Any]:
    """What the Deployment runs."""
    found: dict[str, Any] = only("Deployment")["spec"]["template"]["spec"]
    return found


def container() -> dict[str, Any]:
    (found,) = pod()["containers"]
    assert isinstance(found, dict)
    return found


def variables() -> dict[str, str]:
    return {each["name"]: each["value"] for each in container()["env"]}


def in_bytes(quantity: str) -> int:
    """Of a quantity like 2Gi."""
    found = re.fullmatch(r"(\d+)(Ki|Mi|Gi)", quantity)
    assert found is not None
    return int(found[1]) * BYTES[found[2]]
