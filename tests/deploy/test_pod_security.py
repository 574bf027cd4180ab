"""The pods keep to the restricted Pod Security Standard: each of its controls, by the name that it has there."""

from typing import Any

import pytest

from tests.deploy.manifests import container, of_kind, only, pod

SAFE_TO_ADD = {
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
}
RESTRICTED_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}


def containers() -> list[dict[str, Any]]:
    return [*pod()["containers"], *pod().get("initContainers", ()), *pod().get("ephemeralContainers", ())]


def contexts() -> list[dict[str, Any]]:
    """Of the pod and of each container."""
    return [pod()["securityContext"], *(each["securityContext"] for each in containers())]


def test_host_process() -> None:
    assert not any("windowsOptions" in each for each in contexts())


@pytest.mark.parametrize("name", ["hostNetwork", "hostPID", "hostIPC"])
def test_host_namespaces(name: str) -> None:
    assert not pod().get(name, False)


def test_privileged_containers() -> None:
    assert not any(each["securityContext"].get("privileged", False) for each in containers())


def test_capabilities() -> None:
    for each in containers():
        capabilities = each["securityContext"]["capabilities"]
        assert ["ALL"] == capabilities["drop"]
        assert set(capabilities.get("add", ())) <= {"NET_BIND_SERVICE"} <= SAFE_TO_ADD


def test_host_path_volumes_and_volume_types() -> None:
    for volume in pod()["volumes"]:
        (kind,) = volume.keys() - {"name"}
        assert kind in RESTRICTED_VOLUMES


def test_host_ports() -> None:
    assert not any("hostPort" in port for each in containers() for port in each["ports"])


def test_host_probes_and_lifecycle_hooks() -> None:
    for each in containers():
        handlers = [each[name] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
        handlers += each["lifecycle"].values()
        assert not any("host" in handler.get("httpGet", {}) or "tcpSocket" in handler for handler in handlers)


def test_app_armor() -> None:
    profiles = [each.get("appArmorProfile", {"type": "RuntimeDefault"}) for each in contexts()]
    annotations = only("Deployment")["spec"]["template"]["metadata"].get("annotations", {})

    assert all(each["type"] in ("RuntimeDefault", "Localhost") for each in profiles)
    assert not any("apparmor" in name for name in annotations)


def test_selinux() -> None:
    assert not any("seLinuxOptions" in each for each in contexts())


def test_proc_mount_type() -> None:
    assert all("Default" == each.get("procMount", "Default") for each in contexts())


def test_seccomp() -> None:
    assert "RuntimeDefault" == pod()["securityContext"]["seccompProfile"]["type"]
    assert not any("seccompProfile" in each["securityContext"] for each in containers())


def test_sysctls() -> None:
    assert [] == pod()["securityContext"].get("sysctls", [])


def test_privilege_escalation() -> None:
    assert all(each["securityContext"]["allowPrivilegeEscalation"] is False for each in containers())


def test_running_as_non_root() -> None:
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert all(each["securityContext"].get("runAsNonRoot", True) for each in containers())


def test_running_as_non_root_user() -> None:
    assert all(each.get("runAsUser", 10001) == 10001 for each in contexts())


def test_the_namespace_enforces_the_standard() -> None:
    labels = only("Namespace")["metadata"]["labels"]

    assert "restricted" == labels["pod-security.kubernetes.io/enforce"]


def test_beyond_the_standard_the_image_cannot_be_written() -> None:
    assert container()["securityContext"]["readOnlyRootFilesystem"] is True


def test_beyond_the_standard_no_token_is_mounted() -> None:
    accounts = of_kind("ServiceAccount")

    assert [False] == [each["automountServiceAccountToken"] for each in accounts]
    assert pod()["automountServiceAccountToken"] is False
    assert [pod()["serviceAccountName"]] == [each["metadata"]["name"] for each in accounts]
