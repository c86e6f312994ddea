"""The manifests for Kubernetes keep the schemas of Kubernetes and of KubeRay's RayJob."""

import copy
from pathlib import Path

import pytest
import yaml

reason = "the schemas are not here; `make test-ray` installs them"
jsonschema = pytest.importorskip("jsonschema", reason=reason)
kubernetes_validate = pytest.importorskip("kubernetes_validate", reason=reason)
pytestmark = pytest.mark.ray
FOLDER = Path(__file__).parents[3] / "examples" / "cluster"
VERSIONS = ("1.30", "1.37")
DOCUMENTS = [
    pytest.param(document, id=f"{path.name}-{document['kind']}-{document['metadata']['name']}")
    for path in sorted(FOLDER.glob("kube*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]


def closed(properties, required=()):
    """A schema of an object with no other properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


TEXT, WHOLE, FLAG, ANY = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {}
TEXTS = {"type": "object", "additionalProperties": TEXT}
GROUP = {"template": {"type": "object"}, "rayStartParams": TEXTS}
# The fields of ray.io/v1 in KubeRay 1.2 to 1.4, as its API reference lists them. Some of what is
# required was so in early versions alone. Templates of pods are held against Kubernetes' own.
CLUSTER = closed(
    {
        "rayVersion": TEXT,
        "suspend": FLAG,
        "enableInTreeAutoscaling": FLAG,
        "autoscalerOptions": ANY,
        "headServiceAnnotations": TEXTS,
        "headGroupSpec": closed(
            {**GROUP, "headService": ANY, "enableIngress": FLAG, "serviceType": TEXT}, GROUP
        ),
        "workerGroupSpecs": {
            "type": "array",
            "items": closed(
                {
                    **GROUP,
                    "groupName": TEXT,
                    "suspend": FLAG,
                    "replicas": WHOLE,
                    "minReplicas": WHOLE,
                    "maxReplicas": WHOLE,
                    "idleTimeoutSeconds": WHOLE,
                    "numOfHosts": WHOLE,
                    "scaleStrategy": ANY,
                },
                {*GROUP, "groupName", "minReplicas", "maxReplicas"},
            ),
        },
    },
    ["headGroupSpec"],
)
RAY_JOB = closed(
    {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayJob"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": closed(
            {
                "entrypoint": TEXT,
                "rayClusterSpec": CLUSTER,
                "activeDeadlineSeconds": WHOLE,
                "backoffLimit": WHOLE,
                "clusterSelector": TEXTS,
                "entrypointNumCpus": {"type": "number"},
                "entrypointNumGpus": {"type": "number"},
                "entrypointResources": TEXT,
                "jobId": TEXT,
                "metadata": TEXTS,
                "runtimeEnvYAML": TEXT,
                "shutdownAfterJobFinishes": FLAG,
                "submissionMode": {"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode"]},
                "submitterConfig": ANY,
                "submitterPodTemplate": ANY,
                "suspend": FLAG,
                "ttlSecondsAfterFinished": WHOLE,
            }
        ),
    },
    ["apiVersion", "kind", "metadata", "spec"],
)


def hold_against_schema(document):
    """Raise ValidationError for a field that does not exist or has a wrong type."""
    if document["kind"] != "RayJob":
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
        return
    jsonschema.validate(document, RAY_JOB)
    cluster = document["spec"]["rayClusterSpec"]
    for number, group in enumerate([cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]):
        named = {"metadata": {"name": f"pod-{number}"}, **group["template"]}
        hold_against_schema({"apiVersion": "v1", "kind": "Pod", **named})


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_manifest_keeps_its_schema(document):
    hold_against_schema(document)


def places(tree, path=()):
    """The path of every mapping whose keys a schema fixes."""
    if isinstance(tree, list):
        for number, each in enumerate(tree):
            yield from places(each, (*path, number))
    elif isinstance(tree, dict) and path[-1:] not in [
        ("labels",), ("matchLabels",), ("selector",), ("metadata",), ("requests",), ("limits",),
        ("rayStartParams",), ("nodeSelector",), ("annotations",),
    ]:  # fmt: skip
        yield path
        for key, each in tree.items():
            yield from places(each, (*path, key))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_misspelt_field_is_found_wherever_it_is(document):
    for path in places(document):
        wrong = copy.deepcopy(document)
        where = wrong
        for key in path:
            where = where[key]
        where["replica"] = 3
        with pytest.raises((kubernetes_validate.ValidationError, jsonschema.ValidationError)):
            hold_against_schema(wrong)
