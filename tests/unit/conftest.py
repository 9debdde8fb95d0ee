"""Folders of unit tests: in memory, where scripts/test names a place there (EJB_TEST_UNIT_TEMP).

Half of a unit test with a database would be waiting for the disk to sync SQLite's commits. Tests of the other rooms
stay on the disk: what they start has to do with it.
"""

from __future__ import annotations

import copy
import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def tmp_path_factory(tmp_path_factory: pytest.TempPathFactory) -> pytest.TempPathFactory:
    place = os.environ.get("EJB_TEST_UNIT_TEMP")
    if not place:
        return tmp_path_factory
    here = copy.copy(tmp_path_factory)
    here._basetemp = Path(tempfile.mkdtemp(dir=place)).resolve()
    return here
