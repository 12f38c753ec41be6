"""What a collection takes out, whose Secrets it reads, what its summary says, and which logs it asks for."""

import base64
import json

import pytest
from whetstone_api.remedies import REMEDIES
from whetstone_api.vocabulary import Reason
from whetstone_cli.must_gather.gather import logs_of
from whetstone_cli.must_gather.redaction import REMOVED, Redactor, secret_names
from whetstone_cli.must_gather.summary import summary

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0xyz.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("HF_TOKEN=hunter2-hunter2", "hunter2-hunter2"),
        ('{"api_key": "k3y-of-the-user"}', "k3y-of-the-user"),
        ("AWS_SECRET_ACCESS_KEY: abcdefgh/12345", "abcdefgh/12345"),
        ("password='correct horse'", "correct"),
        ("authorization: Bearer abcdefghijklmnop", "abcdefghijklmnop"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("pulling from https://user:pa55word@registry.test/a", "pa55word"),
        (f"request with {JWT} refused", JWT),
        ("using hf_AbCdEfGhIjKlMnOpQr", "hf_AbCdEfGhIjKlMnOpQr"),
        ("key AKIAABCDEFGHIJKLMNOP", "AKIAABCDEFGHIJKLMNOP"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----", "MIIE"),
        ("-----BEGIN PRIVATE KEY-----\nthe log ends in its middle", "the log ends"),
    ],
)
def test_what_looks_like_a_credential_is_removed(text: str, secret: str) -> None:
    cleaned = Redactor().text(text)
    assert secret not in cleaned
    assert REMOVED in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "prompt_tokens: 1234567, completion_tokens=7654321",
        "tokenizer='/mnt/models/base'",
        "secretName: server-access",
        "secret_path=/etc/whetstone/secrets/hub",
        "bearer tokens are asked for",
        "basic information at https://example.com/docs",
    ],
)
def test_words_about_credentials_stay(text: str) -> None:
    assert Redactor().text(text) == text


def test_known_values_are_removed_wherever_they_turn_up() -> None:
    redactor = Redactor([b"swordfish-7\nsecond line"])
    encoded = base64.b64encode(b"swordfish-7\nsecond line").decode()
    for text in ("said swordfish-7 aloud", "then second line", f"mounted {encoded}"):
        assert REMOVED in redactor.text(text)
    assert redactor.text("said nothing") == "said nothing"
    assert Redactor([b"a", b""]).text("a banana") == "a banana"


def test_an_object_keeps_its_shape_and_loses_its_secrets() -> None:
    pod = {
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "managedFields": [{}],
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "swordfish-7"},
        },
        "spec": {
            "containers": [{"env": [{"name": "HF_TOKEN", "value": "v"}, {"name": "HOME", "value": "/tmp"}]}],
            "volumes": [{"secret": {"secretName": "server-access"}}],
            "parameters": {"apiKey": "abc", "temperature": "0"},
        },
    }
    assert Redactor([b"swordfish-7"]).object(pod) == {
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"note": REMOVED}},
        "spec": {
            "containers": [{"env": [{"name": "HF_TOKEN", "value": REMOVED}, {"name": "HOME", "value": "/tmp"}]}],
            "volumes": [{"secret": {"secretName": "server-access"}}],
            "parameters": {"apiKey": REMOVED, "temperature": "0"},
        },
    }


def test_a_secret_keeps_the_names_of_its_keys() -> None:
    secret = {"kind": "Secret", "metadata": {"name": "s"}, "data": {"b": "c2Vj", "a": "cmV0"}, "type": "Opaque"}
    cleaned = Redactor().object(secret)
    assert cleaned["keys"] == {"a": REMOVED, "b": REMOVED}
    assert "c2Vj" not in json.dumps(cleaned)


def test_every_way_to_name_a_secret_is_found() -> None:
    metadata = {"name": "x", "namespace": "n"}
    server = {
        "metadata": metadata,
        "spec": {
            "model": {"source": {"uri": "hf://a/b", "secretRef": {"name": "hub"}}},
            "apiKeys": [{"name": "k", "secretRef": {"name": "callers", "key": "k"}}],
            "adapterStores": [{"name": "s", "secretRef": {"name": "bucket"}}],
        },
        "status": {"secretRef": {"name": "no-spec"}},
    }
    run = {"metadata": metadata, "spec": {"target": {"endpoint": {"apiKeySecretRef": {"name": "endpoint"}}}}}
    pod = {
        "metadata": metadata,
        "spec": {
            "imagePullSecrets": [{"name": "pull"}],
            "volumes": [{"secret": {"secretName": "token"}}, {"projected": {"sources": [{"secret": {"name": "p"}}]}}],
            "containers": [
                {
                    "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "env", "key": "a"}}}],
                    "envFrom": [{"secretRef": {"name": "all"}}],
                }
            ],
        },
    }
    named = {name for namespace, name in secret_names([server, run, pod]) if namespace == "n"}
    assert named == {"hub", "callers", "bucket", "endpoint", "pull", "token", "p", "env", "all"}


def test_the_summary_says_what_to_do_and_what_is_missing() -> None:
    conditions = [
        {"type": "Ready", "status": "False", "reason": "ClaimNotFound", "message": "spec.model.source.uri: claim x"},
        {"type": "AdaptersLoaded", "status": "True", "reason": "NoAdapters", "message": ""},
    ]
    server = {
        "kind": "ModelServer",
        "metadata": {"namespace": "n", "name": "s", "generation": 2},
        "status": {"conditions": conditions, "observedGeneration": 1},
    }
    new = {"kind": "BenchmarkRun", "metadata": {"namespace": "n", "name": "r", "generation": 1}}
    text = summary([server, new], versions="whetstone: 1\n", gaps=["get nodes: forbidden"])
    assert "ModelServer n/s" in text
    assert "  Ready=False ClaimNotFound: spec.model.source.uri: claim x" in text
    assert f"  what to do about ClaimNotFound: {REMEDIES[Reason.CLAIM_NOT_FOUND].do}" in text
    assert "what to do about NoAdapters" not in text
    assert "not looked at the last change" in text
    assert "BenchmarkRun n/r\n  no conditions: no operator has looked at it" in text
    assert "1 things could not be read:\n  get nodes: forbidden" in text


def test_logs_of_containers_that_ran_are_asked_for() -> None:
    statuses = [
        {"name": "engine", "state": {"waiting": {}}, "restartCount": 2},
        {"name": "sidecar", "state": {"running": {}}, "restartCount": 0},
    ]
    pod = {"status": {"initContainerStatuses": [{"name": "guard", "state": {}}], "containerStatuses": statuses}}
    assert logs_of(pod) == [("guard", False), ("sidecar", False), ("engine", True)]
