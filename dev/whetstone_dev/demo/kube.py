"""The demo's way to the API server: apply, read, delete, logs, and an OpenAI client to a Service of the cluster."""

import ssl
from pathlib import Path
from typing import Any, Self

import httpx
import openai
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError, ResourceNotFoundError
from urllib3.exceptions import HTTPError

from whetstone_dev.commands import DevError

CONNECT_SECONDS = 15
FIELD_MANAGER = "whetstone-demo"
WHETSTONE = "whetstone.dev/v1alpha1"


class Kube:
    """One cluster.

    Args:
        api: Client of its API server.
    """

    def __init__(self, api: Any) -> None:
        self._api = api
        self._dynamic = DynamicClient(api)

    @classmethod
    def connect(cls, kubeconfig: Path) -> Self:
        """Return a client for the current context of a kubeconfig.

        Raises:
            DevError: The file says nothing usable, or the API server does not answer or does not know its user.
        """
        try:
            api = config.new_client_from_config(str(kubeconfig))
        except (config.ConfigException, yaml.YAMLError, OSError) as error:
            raise DevError(f"kubeconfig {kubeconfig}: {' '.join(str(error).split())}") from error
        host = api.configuration.host
        try:
            client.VersionApi(api).get_code(_request_timeout=CONNECT_SECONDS)
            return cls(api)
        except HTTPError as error:
            reason = getattr(error, "reason", None) or error
            raise DevError(f"API server {host} does not answer: {reason}") from error
        except ApiException as error:
            raise DevError(f"API server {host} refuses kubeconfig {kubeconfig}: {error.reason}") from error

    @property
    def server(self) -> str:
        """The API server's URL."""
        return str(self._api.configuration.host)

    def version(self) -> tuple[int, int]:
        """Return major and minor version of the API server."""
        found = client.VersionApi(self._api).get_code()
        return int(found.major), int("".join(character for character in found.minor if character.isdigit()))

    def allowed(self, *, verb: str, group: str, resource: str, sub: str, namespace: str) -> bool:
        """Return whether the kubeconfig's user may do something; no namespace means in all."""
        attributes = {"verb": verb, "group": group, "resource": resource, "subresource": sub, "namespace": namespace}
        review = {"spec": {"resourceAttributes": attributes}}
        answer = client.AuthorizationV1Api(self._api).create_self_subject_access_review(review)
        return bool(answer.status.allowed)

    def apply(self, obj: dict[str, Any], *, namespace: str | None = None) -> None:
        """Apply an object on the server side."""
        resource = self._dynamic.resources.get(api_version=obj["apiVersion"], kind=obj["kind"])
        resource.server_side_apply(
            body=obj,
            name=obj["metadata"]["name"],
            namespace=namespace,
            field_manager=FIELD_MANAGER,
            force_conflicts=True,
        )

    def get(self, api_version: str, kind: str, *, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        """Return an object; None when it does not exist."""
        resource = self._dynamic.resources.get(api_version=api_version, kind=kind)
        try:
            found: dict[str, Any] = resource.get(name=name, namespace=namespace).to_dict()
        except NotFoundError:
            return None
        return found

    def list(
        self, api_version: str, kind: str, *, namespace: str | None = None, labels: str = ""
    ) -> list[dict[str, Any]]:
        """Return the objects of a namespace, or of all, that match a label selector; none of an unknown kind."""
        try:
            resource = self._dynamic.resources.get(api_version=api_version, kind=kind)
        except ResourceNotFoundError:
            return []
        items: list[dict[str, Any]] = resource.get(namespace=namespace, label_selector=labels).to_dict()["items"]
        return items

    def delete(self, api_version: str, kind: str, *, name: str, namespace: str | None = None) -> None:
        """Delete an object and what it owns; an absent one is fine."""
        resource = self._dynamic.resources.get(api_version=api_version, kind=kind)
        try:
            resource.delete(name=name, namespace=namespace, body={"propagationPolicy": "Background"})
        except NotFoundError:
            return

    def evict(self, *, namespace: str, pod: str) -> None:
        """Evict a pod as `kubectl drain` does: within its disruption budget."""
        body = client.V1Eviction(metadata=client.V1ObjectMeta(name=pod, namespace=namespace))
        client.CoreV1Api(self._api).create_namespaced_pod_eviction(name=pod, namespace=namespace, body=body)

    def logs(self, *, namespace: str, pod: str, container: str, lines: int, timestamps: bool = False) -> str:
        """Return the last log lines of a container; what went wrong, in words, when there are none to be had.

        Args:
            namespace: The pod's namespace.
            pod: Its name.
            container: The container's name.
            lines: How many lines.
            timestamps: Whether each line begins with the time at which the container runtime took it, RFC 3339.
        """
        try:
            text: str = client.CoreV1Api(self._api).read_namespaced_pod_log(
                name=pod, namespace=namespace, container=container, tail_lines=lines, timestamps=timestamps
            )
        except ApiException as error:
            return f"(no log: {error.reason})"
        return text

    def openai(self, *, namespace: str, service: str) -> openai.OpenAI:
        """Return an OpenAI client that reaches a Service through the API server, with the kubeconfig's rights."""
        settings = self._api.configuration
        context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        if not settings.verify_ssl:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        token = (settings.api_key.get("authorization") or "").removeprefix("Bearer ")
        return openai.OpenAI(
            base_url=f"{settings.host}/api/v1/namespaces/{namespace}/services/{service}:http/proxy/v1",
            api_key=token or "none",
            http_client=httpx.Client(verify=context, timeout=120),
        )


def read_manifests(folder: Path) -> list[dict[str, Any]]:
    """Return the objects of all YAML files of a folder, in the order of the files' names."""
    return [
        document
        for path in sorted(folder.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document
    ]
