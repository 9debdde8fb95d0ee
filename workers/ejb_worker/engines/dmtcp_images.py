"""Checkpoint images on the spool: what is whole, and what a restart is made from.

The images of an epoch go to `<epoch_dir>/checkpoint/rank-<r>` (and `pmi` for a helper) and stay there. DMTCP keeps
copies of files that the program had open beside them, by absolute paths. Each worker writes a manifest of its own ranks
once they are whole: what has no manifest is no checkpoint. The generation before is the checkpoint of the epoch before.
"""

from __future__ import annotations

import os
import socket
from typing import Any, Dict, Iterable, List, Tuple

from ..files import make_dir, read_json, write_json
from .base import EngineError, SpoiledCheckpoint

IMAGE = ".dmtcp"
TEMPORARY = ".temp"
MANIFEST = "manifest-"


def member(rank: int) -> str:
    """The folder of a rank's images."""
    return "rank-%d" % rank


def empty_folder(folder: str) -> None:
    """An empty folder: the images of a checkpoint that failed must not be taken for the next one's."""
    make_dir(folder)
    for inside, folders, names in os.walk(folder, topdown=False):
        for name in names:
            os.unlink(os.path.join(inside, name))
        for name in folders:
            os.rmdir(os.path.join(inside, name))


def look(folder: str) -> Tuple[List[str], List[str]]:
    """Whole images and unfinished ones in a folder, by name."""
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return [], []
    return [n for n in names if n.endswith(IMAGE)], [n for n in names if n.endswith(TEMPORARY)]


def count(folder: str) -> Tuple[int, int]:
    """Whole and unfinished images of all members of a checkpoint."""
    whole = unfinished = 0
    for name in os.listdir(folder):
        done, temporary = look(os.path.join(folder, name))
        whole += len(done)
        unfinished += len(temporary)
    return whole, unfinished


class Generation:
    """A checkpoint that can be restarted from: all manifests of its folder together."""

    def __init__(self, folder: str) -> None:
        """Raises EngineError unless it is there and readable."""
        self.folder = folder
        self.size = 0
        self.versions: List[str] = []
        self.members: Dict[str, List[Dict[str, Any]]] = {}
        self.services: Dict[str, Any] = {}
        self.compress: Dict[str, Any] = {}
        try:
            names = sorted(name for name in os.listdir(folder) if name.startswith(MANIFEST) and name.endswith(".json"))
            for name in names:
                manifest = read_json(os.path.join(folder, name))
                self.size = int(manifest["size"])
                self.versions.append(str(manifest["dmtcp"]))
                self.members.update(manifest["members"])
                self.services.update(manifest["services"])
                self.compress = manifest.get("compress") or self.compress
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SpoiledCheckpoint("the checkpoint to restart from cannot be read: %s" % error) from None
        if not self.members:
            raise SpoiledCheckpoint("the checkpoint to restart from is not there: %s" % folder)

    @property
    def processes(self) -> int:
        return sum(len(images) for images in self.members.values())

    def check(self, size: int, version: str) -> None:
        """Raises EngineError unless every rank is in it, and it was written by this version of DMTCP."""
        missing = [rank for rank in range(size) if member(rank) not in self.members]
        if missing or self.size != size:
            raise SpoiledCheckpoint(
                "the checkpoint is not whole: rank %s is missing in %s"
                % (", ".join(str(rank) for rank in missing[:10]) or "(another size)", self.folder)
            )
        others = sorted({other for other in self.versions if other != version})
        if others:
            raise EngineError("the checkpoint is of DMTCP %s, but this node has %s" % (", ".join(others), version))

    def verify(self, names: Iterable[str]) -> None:
        """Hold the images of these members against their checksums, where they have any. Takes as long as reading them.

        Raises SpoiledCheckpoint for one that is not as it was written.
        """
        for name in names:
            for path, image in zip(self.images(name), self.members[name]):
                wanted = image.get("sha256")
                if wanted is not None and checksum(path) != wanted:
                    raise SpoiledCheckpoint(
                        "the image of %s is not as it was written: %s has another checksum" % (name, path)
                    )

    @property
    def summed(self) -> bool:
        return any("sha256" in image for images in self.members.values() for image in images)

    def images(self, name: str) -> List[str]:
        """The images of one member. Raises EngineError for one that is not as it was written."""
        paths = []
        for image in self.members[name]:
            path = os.path.join(self.folder, name, str(image["image"]))
            try:
                size = os.stat(path).st_size
            except OSError as error:
                why = "the image of %s cannot be read: %s: %s" % (name, path, error.strerror)
                raise (SpoiledCheckpoint if isinstance(error, FileNotFoundError) else EngineError)(why) from None
            if size != image["bytes"]:
                raise SpoiledCheckpoint(
                    "the image of %s is not as it was written: %s has %d bytes instead of %d"
                    % (name, path, size, image["bytes"])
                )
            paths.append(path)
        return paths


def checksum(path: str) -> str:
    """SHA-256 of a file. Raises OSError."""
    import hashlib  # a megabyte that a worker that keeps no checksums does not hold

    digest = hashlib.sha256()
    with open(path, "rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            digest.update(chunk)
    return digest.hexdigest()


def checksums(folder: str, names: Iterable[str]) -> Dict[str, str]:
    """Of all images of these members, by path."""
    paths = [os.path.join(folder, name, image) for name in names for image in look(os.path.join(folder, name))[0]]
    return {path: checksum(path) for path in paths}


def keep(
    folder: str,
    names: Iterable[str],
    *,
    size: int,
    node: str,
    version: str,
    services: Dict[str, Any],
    compress: Dict[str, Any],
    sums: Dict[str, str],
) -> Dict[str, int]:
    """Write the manifest of these members; bytes by member. Raises EngineError where an image is not whole, OSError.

    `compress`: how it was chosen whether images are compressed; `sums`: checksums by path, where they were asked for.
    """
    members: Dict[str, List[Dict[str, Any]]] = {}
    for name in names:
        source = os.path.join(folder, name)
        whole, unfinished = look(source)
        if unfinished:
            raise EngineError("%s left an unfinished image: %s" % (name, unfinished[0]))
        if not whole:
            raise EngineError("%s has written no image" % name)
        entries = []
        for image in whole:
            path = os.path.join(source, image)
            os.chmod(path, 0o600)
            entry: Dict[str, Any] = {"image": image, "bytes": os.stat(path).st_size}
            if path in sums:
                entry["sha256"] = sums[path]
            entries.append(entry)
        members[name] = entries
    manifest = {
        "engine": "dmtcp",
        "dmtcp": version,
        "size": size,
        "node": node,
        "host": socket.gethostname(),
        "members": members,
        "services": services,
        "compress": compress,
    }
    write_json(os.path.join(folder, "%s%s.json" % (MANIFEST, node)), manifest, sync=True)
    return {name: sum(entry["bytes"] for entry in entries) for name, entries in members.items()}
