"""The manifests in deploy/kubernetes: Kubernetes' schemas, what they must agree on, and hvdrun's options in them."""

import copy
import os
import shlex
import subprocess
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "deploy/kubernetes"
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())
VERSIONS = ("1.31", "1.37")  # the first one that scales Indexed Jobs, and the newest
CUSTOM = {"kubeflow.org/v2beta1", "trainer.kubeflow.org/v1alpha1"}
PORT = "7780"


def resources(overlay):
    """The documents of an overlay, by kind and name."""
    folder = FOLDER / "overlays" / overlay
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    own = [name for name in kustomization["resources"] if name != "../../base"]
    assert {*own, "kustomization.yaml"} == {path.name for path in folder.iterdir()}
    found = [document for name in own for document in yaml.safe_load_all((folder / name).read_text())]
    return {(document["kind"], document["metadata"]["name"]): document for document in found}


def pod_specs(value):
    """All specs of pods in a document, wherever they stand."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for part in value.values():
            yield from pod_specs(part)
    elif isinstance(value, list):
        for part in value:
            yield from pod_specs(part)


def variables(container):
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container.get("env", [])}


def validate(document):
    for version in VERSIONS:
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_schemas(overlay):
    for (kind, name), document in resources(overlay).items():
        specs = list(pod_specs(document))
        if document["apiVersion"] not in CUSTOM:
            validate(document)
        for spec in specs:
            validate({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
            assert spec["securityContext"]["runAsNonRoot"], (kind, name)
            for container in spec["containers"]:
                assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
                assert not container["securityContext"]["allowPrivilegeEscalation"]
                assert container["envFrom"] == [{"secretRef": {"name": "hvd-key"}}]
                assert "HVD_JOB_KEY" not in variables(container)


def test_a_misspelt_field_is_found():
    document = copy.deepcopy(resources("elastic")["Job", "train-workers"])
    document["spec"]["template"]["spec"]["terminationGracePeriodSecond"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        validate(document)


def test_the_indexed_job_agrees_with_its_service():
    found = resources("indexed-job")
    job, service = found["Job", "train"]["spec"], found["Service", "train"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    environment = variables(container)
    assert job["completionMode"] == "Indexed"
    assert int(environment["HVD_SIZE"]) == job["completions"] == job["parallelism"]
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    assert environment["HVD_RANK"] == {"fieldRef": {"fieldPath": index}}
    assert job["template"]["spec"]["subdomain"] == "train"
    assert environment["HVD_RENDEZVOUS"] == f"train-0.train:{service['ports'][0]['port']}"
    assert service["clusterIP"] == "None" and service["publishNotReadyAddresses"]
    assert service["selector"] == {"batch.kubernetes.io/job-name": "train"}


def unknown(given, known, path=""):
    """The fields of a document that its model does not have."""
    if isinstance(given, dict):
        return [
            field
            for name, value in given.items()
            for field in (unknown(value, known[name], f"{path}.{name}") if name in known else [f"{path}.{name}"])
        ]
    if isinstance(given, list):
        return [field for pair in zip(given, known, strict=True) for field in unknown(*pair, path)]
    return []


def test_the_train_job_agrees_with_its_runtime():
    from kubeflow_trainer_api import models  # takes two seconds

    found = resources("trainjob")
    for (kind, _), document in found.items():
        model = getattr(models, f"TrainerV1alpha1{kind}").from_dict(document)
        assert unknown(document, model.to_dict()) == []
    trainer = found["TrainJob", "train"]["spec"]
    runtime = found["TrainingRuntime", trainer["runtimeRef"]["name"]]["spec"]
    environment = variables(trainer["trainer"])
    assert int(environment["HVD_SIZE"]) == trainer["trainer"]["numNodes"]
    (replicated,) = runtime["template"]["spec"]["replicatedJobs"]
    ancestor = replicated["template"]["metadata"]["labels"]["trainer.kubeflow.org/trainjob-ancestor-step"]
    assert (replicated["name"], ancestor) == ("node", "trainer")
    assert environment["HVD_RENDEZVOUS"] == f"train-{replicated['name']}-0-0.train:7777"
    (spec,) = pod_specs(runtime)
    assert "HVD_RANK" in variables(spec["containers"][0])


def dry_run(command, **more):
    """What hvdrun makes of a container's command."""
    assert command[0] == "hvdrun"
    environment = {**os.environ, "HVD_JOB_KEY": "a" * 64, **more}
    ended = subprocess.run(
        ["hvdrun", "--dry-run", *command[1:]], env=environment, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_mpi_job_reaches_its_workers(tmp_path):
    replicas = resources("mpijob")["MPIJob", "train"]["spec"]["mpiReplicaSpecs"]
    (launcher,), (worker,) = (replicas[kind]["template"]["spec"]["containers"] for kind in ("Launcher", "Worker"))
    assert worker["command"] == ["hvdrun", "agent", "--listen", PORT]
    names = [f"train-worker-{number}.train.team.svc" for number in range(replicas["Worker"]["replicas"])]
    hostfile = tmp_path / "hostfile"
    hostfile.write_text("".join(f"{name} slots=2\n" for name in names))  # as mpi-operator writes it
    plan = dry_run(launcher["command"], OMPI_MCA_orte_default_hostfile=str(hostfile))
    for name in names:
        assert f"agent --call {name}:{PORT} " in plan, plan
    assert plan.count("rank ") >= 4 and shlex.join(launcher["command"][-2:]) in plan, plan


def test_the_driver_may_do_what_it_does_and_no_more():
    found = resources("elastic")
    (driver,) = found["Job", "train"]["spec"]["template"]["spec"]["containers"]
    workers = found["Job", "train-workers"]
    (worker,) = workers["spec"]["template"]["spec"]["containers"]
    dry_run(driver["command"])
    assert "--pod-selector=job-name=train-workers" in driver["command"]
    assert f"--agent-port={PORT}" in driver["command"]
    assert worker["command"] == ["hvdrun", "agent", "--listen", PORT]
    account = found["Job", "train"]["spec"]["template"]["spec"]["serviceAccountName"]
    assert found["RoleBinding", "hvdrun"]["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    pods, jobs = found["Role", "hvdrun"]["rules"]
    assert (pods["resources"], pods["verbs"]) == (["pods"], ["list", "watch"])
    assert (jobs["resourceNames"], jobs["verbs"]) == (["train-workers"], ["get", "patch"])
    spec = workers["spec"]
    assert spec["completionMode"] == "Indexed" and spec["completions"] == spec["parallelism"]
    assert workers["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
