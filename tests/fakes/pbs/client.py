"""Every command of the fake: hands what was typed to the server, and prints what comes back: `client.py FOLDER NAME`.

Standard library only, and run without site packages: a poll starts three of them. So it imports what the interpreter
has in itself: `json` and `socket` cost it more than all else.
"""

from __future__ import annotations

import marshal
import os
import sys
from _socket import AF_UNIX, MSG_WAITALL, socket

FOLDER, NAME, WORDS = sys.argv[1], sys.argv[2], sys.argv[3:]


def ask(path: str, request: dict) -> dict:  # type: ignore[type-arg]
    """Each way: the length as eight bytes, and what `marshal` makes of it."""
    client = socket(AF_UNIX)
    client.connect(path)
    data = marshal.dumps(request, 2)
    client.sendall(len(data).to_bytes(8, "big") + data)
    head = client.recv(8, MSG_WAITALL)
    body = client.recv(int.from_bytes(head, "big"), MSG_WAITALL) if head else b""
    client.close()
    return marshal.loads(body) if body else {"out": "", "err": f"{NAME}: End of File\n", "code": 1}


def away() -> int:
    """As the recordings have it, with the server down."""
    import json

    with open(f"{FOLDER}/site.json") as file:
        site = json.load(file)
    head = site["head"]
    if NAME.startswith(("show", "check")):
        sys.stderr.write(
            f"ERROR:    cannot send request to server {head}:42559 (server may not be running)\n"
            "ERROR:    cannot request service (status)\n"
        )
        return 1
    if site["dialect"] == "openpbs":
        sys.stderr.write("Connection refused\n")
        if NAME == "qstat" and "json" in WORDS:
            sys.stdout.write(json.dumps({"timestamp": 1, "pbs_version": "23.06.06", "pbs_server": head}) + "\n")
        if NAME == "qdel":
            sys.stderr.write(f"Couldn't connect to cluster: {head}\n")
        elif NAME == "pbsnodes":
            sys.stderr.write(f"pbsnodes: cannot connect to server {head}, error=15010\n")
        else:
            sys.stderr.write(f"{NAME}: cannot connect to server {head} (errno=15010)\n")
        return {"qstat": 255, "pbsnodes": 1}.get(NAME, 162)
    sys.stderr.write(f"\nUnable to communicate with {head}(10.97.2.1)\n")
    sys.stderr.write(f"Cannot connect to specified server host '{head}'.\n")
    sys.stderr.write(f"{NAME}: cannot connect to server {head} (errno=111) Connection refused\n")
    return 1 if NAME == "pbsnodes" else 111


def pbsdsh() -> int:
    """Tasks on the nodes of the job that this runs in. Its own exit code is 0 whatever becomes of them."""
    import json

    id = os.environ.get("PBS_JOBID")
    if not id:
        sys.stderr.write("pbsdsh: not executing under PBS\n")
        return 1
    with open(os.environ["PBS_NODEFILE"]) as file:
        hosts = file.read().split()
    nodes, words = list(range(len(hosts))), list(WORDS)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        if word == "-n":
            nodes = [int(words.pop(0))]
        elif word == "-u":
            nodes = [hosts.index(host) for host in dict.fromkeys(hosts)]
    path = f"{FOLDER}/jobs/{id.partition('.')[0]}.sock"
    for node in nodes:
        client = socket(AF_UNIX)
        client.connect(path)
        client.sendall(json.dumps({"do": "spawn", "node": node, "argv": words}).encode() + b"\n")
        line = b""
        while not line.endswith(b"\n") and (more := client.recv(65536)):
            line += more
        client.close()
        answer = json.loads(line) if line else {}
        if answer.get("status"):
            sys.stdout.write(f"pbsdsh: task 0x{answer['task']:08X} exit status {answer['status']}\n")
    return 0


def main() -> int:
    if NAME == "pbsdsh":
        return pbsdsh()
    stdin = ""
    if NAME == "qsub" and not sys.stdin.isatty():
        stdin = sys.stdin.buffer.read().decode(errors="surrogateescape")
    request = {
        "command": NAME,
        "words": WORDS,
        "cwd": os.path.realpath("."),
        "user": os.environ.get("FAKE_PBS_USER") or __import__("pwd").getpwuid(os.geteuid()).pw_name,
        "environment": dict(os.environ),
        "stdin": stdin,
    }
    try:
        answer = ask(f"{FOLDER}/maui" if NAME.startswith(("show", "check")) else f"{FOLDER}/server", request)
    except OSError:
        return away()
    sys.stdout.buffer.write(answer["out"].encode(errors="surrogateescape"))
    sys.stdout.flush()
    sys.stderr.write(answer["err"])
    return int(answer["code"])


sys.exit(main())
