"""The dockerized Slurm holds together, as far as that can be said without an engine; `scripts/compose-test` runs it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from ejbd.config import Settings

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "deploy" / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
BUILT = {name: service for name, service in SERVICES.items() if "build" in service}
WELL = (DOCKER / "well.sh").read_text()
NODES = ("c1", "c2", "c3")
ROOTS = {"demo", "helper", *NODES}  # which may be root, and with which capabilities
CAPABILITIES = {"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "KILL", "SETGID", "SETUID"}
ANYWHERE = {"demo", "prometheus", "token"}  # without an address of their own


def settings_of(name: str) -> dict[str, str]:
    lines = (DOCKER / name).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def address(service: str) -> str:
    told: str = SERVICES[service]["networks"]["cluster"]["ipv4_address"]
    return told


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_tells_of_its_health(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] in ("CMD", "CMD-SHELL")
    assert {"interval", "timeout", "retries"} <= set(check)


@pytest.mark.parametrize("name", sorted({*SERVICES} - {"grafana"}))
def test_what_is_well_is_looked_at_seldom(name: str) -> None:
    """Docker asks every 3 s for ever: of two clusters that kept half a processor busy."""
    check, waits_s = SERVICES[name]["healthcheck"], int(re.findall(r"sleep (\d+)", WELL)[0])
    assert check["test"][:2] == ["CMD", "well"] and len(check["test"]) == 3
    assert float(check["timeout"].removesuffix("s")) > waits_s + 10, "the check itself follows"


@pytest.mark.parametrize("began", ["7", "8"], ids=["the same container", "one that was restarted"])
@pytest.mark.parametrize("check", ["true", "false"])
def test_a_check_waits_where_the_service_was_well_since_its_container_began(
    tmp_path: Path, began: str, check: str
) -> None:
    (tmp_path / "stat").write_text(" ".join(["1", "(sh)", *["0"] * 19, began, "0"]))
    (tmp_path / "mark").write_text("7\n")
    (tmp_path / "sleep").write_text(f"#!/bin/sh\ntouch {tmp_path}/waited\n")
    (tmp_path / "sleep").chmod(0o755)
    script = WELL.replace("/proc/1/stat", f"{tmp_path}/stat").replace("/tmp/.well", f"{tmp_path}/mark")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", script, "well", check], env=environment, timeout=180, check=False)
    assert done.returncode == (check == "false")
    assert (tmp_path / "waited").exists() == (began == "7")
    assert (tmp_path / "mark").exists() == (check == "true")
    if check == "true":
        assert (tmp_path / "mark").read_text().strip() == began


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_is_privileged_or_takes_a_port_of_the_host(name: str) -> None:
    service = SERVICES[name]
    assert service.get("network_mode", "service:ejbd") == "service:ejbd"
    assert not {"privileged", "ports", "pid", "ipc", "devices", "ulimits"} & set(service)
    assert "build" not in service or service["cap_drop"] == ["ALL"]
    added = set(service.get("cap_add", ()))
    assert added <= CAPABILITIES
    assert not added or name in ROOTS


def test_two_projects_can_be_up_at_once() -> None:
    subnet = "${EJB_SUBNET:-172.30.26}"
    assert COMPOSE["networks"]["cluster"]["ipam"]["config"] == [{"subnet": f"{subnet}.0/24"}]
    fixed = [address(name) for name in SERVICES if name not in ANYWHERE]
    assert len(set(fixed)) == len(fixed)
    assert all(one.startswith(f"{subnet}.") for one in fixed)
    assert not any("container_name" in service for service in SERVICES.values())
    assert all(volume is None for volume in COMPOSE["volumes"].values()), "named by their project"


def test_names_lead_to_the_addresses_that_the_services_have() -> None:
    for service in SERVICES.values():
        for row in service.get("extra_hosts", ()):
            name, where = re.fullmatch(r"([a-z0-9]+):(.*)", row).groups()  # type: ignore[union-attr]
            assert where == address(name)


def test_volumes_and_services_that_are_named_are_there() -> None:
    for service in SERVICES.values():
        assert set(service.get("depends_on", ())) <= set(SERVICES)
        named = {volume.split(":")[0] for volume in service.get("volumes", ()) if volume[0].isalpha()}
        assert named <= set(COMPOSE["volumes"])
    small = yaml.safe_load((DOCKER / "small-spool.yml").read_text())
    assert set(small["volumes"]) <= set(COMPOSE["volumes"])


@pytest.mark.parametrize("name", sorted({service["build"]["dockerfile"] for service in BUILT.values()}))
def test_dockerfiles_copy_what_the_context_has(name: str) -> None:
    """Of the repository, and let in by .dockerignore; in words that Docker's own old builder knows, too."""
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = {line[1:] for line in ignore if line.startswith("!")}
    text = (ROOT / name).read_text().replace("\\\n", " ")
    instructions = [line for line in text.splitlines() if line and not line.startswith("#")]
    given = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    assert "syntax=" not in text
    for line in instructions:
        word, *rest = line.split()
        assert word in {"FROM", "RUN", "COPY", "ENV", "ARG", "USER", "WORKDIR", "CMD", "ENTRYPOINT"}
        if word == "RUN":
            assert not rest[0].startswith("--")
            assert "<<" not in line
        if word == "COPY" and not rest[0].startswith("--from="):
            for source in rest[:-1]:
                assert (ROOT / source).exists()
                assert any(source == one or source.startswith(f"{one}/") for one in let_in)
        if word == "FROM":
            base = given[rest[0][1:]] if rest[0].startswith("$") else rest[0]
            assert base in {"debian:bookworm-slim", "python:3.11-slim-bookworm"}


@pytest.mark.parametrize(("image", "variable"), [("ejb-slurm", "EJB_SLURM_BASE"), ("ejb-ejbd", "EJB_BASE")])
def test_another_distribution_s_slurm_is_a_build_argument(image: str, variable: str) -> None:
    services = [one for one in BUILT.values() if one["image"] == image]
    assert services
    for service in services:
        name = service["build"]["dockerfile"]
        default = re.search(r"^ARG BASE=(\S+)$", (ROOT / name).read_text(), re.MULTILINE)
        assert default is not None and service["build"]["args"]["BASE"] == f"${{{variable}:-{default[1]}}}"


def test_entry_points_know_the_commands_of_the_services() -> None:
    known = set(re.findall(r"^(\w+)\)$", (DOCKER / "slurm" / "entrypoint.sh").read_text(), re.MULTILINE))
    assert {service["command"][0] for service in SERVICES.values() if service["image"] == "ejb-slurm"} == known


def test_slurm_knows_the_nodes_and_hosts_that_there_are() -> None:
    conf, dbd = settings_of("slurm.conf"), settings_of("slurmdbd.conf.in")
    assert conf["NodeName"].split()[0] == "c[1-3]"
    assert all(SERVICES[name]["hostname"] == name for name in (*NODES, "slurmctld", "slurmdbd"))
    assert conf["SlurmctldHost"] in SERVICES
    assert conf["AccountingStorageHost"] in SERVICES
    assert {dbd["DbdHost"], dbd["StorageHost"]} <= set(SERVICES)
    # Nothing that an unprivileged container cannot have.
    assert (conf["ProctrackType"], conf["TaskPlugin"]) == ("proctrack/linuxproc", "task/none")


def test_the_daemon_s_configuration_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    table = tomllib.loads((DOCKER / "ejbd.toml").read_text())
    monkeypatch.setenv("EJBD_DATABASE_URL", SERVICES["ejbd"]["environment"]["EJBD_DATABASE_URL"])
    settings = Settings(**table)
    assert settings.batch == "slurm"
    assert settings.url_of_database.startswith("postgresql+psycopg://")
    assert settings.advertise_url == f"http://ejbd:{settings.listen.rpartition(':')[2]}"
    assert settings.queues["batch"].elasticity == "off", "until the operator says otherwise"
    users = (DOCKER / "users.sh").read_text()
    assert f"install -d -o ejb -g ejb -m 700 {settings.state_dir}\n" in users
    assert f"install -d -o ejb -g ejb -m 711 {settings.socket_path.parent}\n" in users
    assert set(settings.admins) <= set(re.findall(r"(\w+):1\d\d\d", users))


def test_the_daemon_reaches_users_by_the_helper_alone() -> None:
    """It sees neither homes nor spools; helper and daemon agree on the door and on where spools are."""
    table = tomllib.loads((DOCKER / "ejbd.toml").read_text())
    helper = json.loads((DOCKER / "ejb-as.json").read_text())
    assert (table["identity"], table["helper"]["spool"]) == ("helper", helper["spool"])
    assert set(table["admins"]) == set(helper["refused"])
    volumes = {
        name: {row.split(":")[1] for row in SERVICES[name]["volumes"] if row[0].isalpha()}
        for name in ("ejbd", "helper", "client")
    }
    assert volumes["ejbd"] == {table["state_dir"], "/run/ejb", "/run/ejb-as", "/run/munge"}
    assert {"/home", "/spool"} <= volumes["helper"] & volumes["client"]
    assert "/run/ejb-as" not in volumes["client"]
    assert SERVICES["helper"]["command"][-3:] == [
        table["helper"]["socket"],
        SERVICES["ejbd"]["user"],
        "/usr/local/lib/ejb/ejb-as",
    ]


def test_the_rules_and_the_board_are_those_of_deploy() -> None:
    config = yaml.safe_load((DOCKER / "prometheus" / "prometheus.yml").read_text())
    copied = (DOCKER / "prometheus" / "Dockerfile").read_text()
    assert [f"deploy/prometheus/{name}" in copied for name in config["rule_files"]] == [True]
    assert "./deploy/grafana:/etc/ejb-boards:ro" in SERVICES["grafana"]["volumes"]
    boards = yaml.safe_load((DOCKER / "grafana" / "boards.yml").read_text())
    assert boards["providers"][0]["options"]["path"] == "/etc/ejb-boards"


def test_commands_in_the_readme_name_services_and_files_that_are_there() -> None:
    text = (DOCKER / "README.md").read_text().replace("\\\n", " ")
    for verb, rest in re.findall(
        r"docker compose (kill -s KILL|start|stop|restart|run --rm|exec(?: -[uw] \S+)*) (\S+)", text
    ):
        assert rest.strip("`;,") in SERVICES, verb
    for name in re.findall(r"-f (\S+\.yml)", text):
        assert (ROOT / name).exists()
    for command in re.findall(r"scontrol create reservation ([^`|]+)`", text):
        assert all("=" in word for word in shlex.split(command))
