"""Times of day, sign-in and TLS."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ejbd.wire.rights import Scope

TIME_OF_DAY = r"^(|([01][0-9]|2[0-3]):[0-5][0-9])$"  # "": never


class DailySettings(BaseModel):
    """What is done once a day, at a time of `time_zone`. What a daemon that was away has missed it does once."""

    model_config = ConfigDict(extra="forbid")

    prune_at: Annotated[
        str,
        Field(pattern=TIME_OF_DAY, min_length=5, description="`HH:MM`: what is older than `*_retention_days` goes"),
    ] = "03:30"
    backup_at: Annotated[str, Field(pattern=TIME_OF_DAY, description='`HH:MM`: the database is copied; "": never')] = ""
    backup_dir: Path | None = Field(default=None, description="folder of the copies; default: <state_dir>/backups")
    backups_kept: Annotated[int, Field(ge=1, le=3650, description="older copies of `backup_dir` are removed")] = 7
    import_at: Annotated[
        str,
        Field(pattern=TIME_OF_DAY, description='`HH:MM`: `import_file` is read as by `ejb history import`; "": never'),
    ] = ""
    import_file: Path | None = Field(default=None, description="what accounting writes (docs/speculation.md)")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.import_at and self.import_file is None:
            raise PydanticCustomError("import_file", "import_at is set, and import_file says no file")
        return self


class OidcSettings(BaseModel):
    """An identity provider with tokens that are taken. See docs/rest.md."""

    model_config = ConfigDict(extra="forbid")

    issuer: Annotated[str, Field(min_length=1, description="its address, which stands in every token as `iss`")]
    audience: Annotated[str, Field(min_length=1, description="what its tokens for EJB have as `aud`")]
    jwks_url: str | None = Field(default=None, description="of its keys; default: as its discovery document says")
    claim: Annotated[str, Field(min_length=1, description="the claim that names the user")] = "sub"
    user: Annotated[
        str,
        Field(description="a pattern for the whole of that claim; the user is its group `user`, or all of it"),
    ] = r"[a-z_][a-z0-9_-]*"
    scope: Annotated[Scope, Field(description="the widest that such a token is good for")] = Scope.SUBMIT
    algorithms: Annotated[
        list[Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]],
        Field(min_length=1, description="kinds of signature that are taken; never a shared secret, and never none"),
    ] = ["RS256", "ES256"]
    ca: Path | None = Field(default=None, description="certificates by which it is known; default: the system's")
    client_id: str | None = Field(default=None, min_length=1, description="of the page; none: browsers need a link")
    client_secret_file: Path | None = Field(default=None, description="of a client that is not public")
    browser_scope: Annotated[str, Field(min_length=1, description="what is asked for a browser")] = "openid"
    page_url: str | None = Field(default=None, description="the page's address as browsers see it, where it differs")

    def client_secret(self) -> str | None:
        """Read each time: it may be changed while the daemon runs. Raises OSError, and ValueError for no text."""
        return None if self.client_secret_file is None else self.client_secret_file.read_text().strip()

    @staticmethod
    def check_address(url: str) -> str:
        """Raise ValueError for an address at which another could answer in the provider's place."""
        parts = urlsplit(url)
        if parts.scheme == "https" and parts.hostname:
            return url
        if parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost"):
            return url
        raise ValueError(f"{url!r} is no https:// address, and not on this machine")

    @model_validator(mode="after")
    def _usable(self) -> Self:
        try:
            for url in filter(None, (self.issuer, self.jwks_url, self.page_url)):
                self.check_address(url)
            re.compile(self.user)
        except (ValueError, re.error) as error:
            raise PydanticCustomError("oidc", "{why}", {"why": str(error)}) from None
        return self


class TlsSettings(BaseModel):
    """How what users send over TCP is kept from being read on its way."""

    model_config = ConfigDict(extra="forbid")

    listen: str | None = Field(default=None, description="host:port for users, encrypted; none unless told to")
    certificate: Path | None = Field(default=None, description="PEM file: its certificate, and those up to its root's")
    key: Path | None = Field(default=None, description="PEM file: its private key; default: in `certificate`")
    by_proxy: bool = Field(
        default=False, description="a proxy in front of `listen` encrypts: tokens are taken there in the clear"
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.listen is None) is not (self.certificate is None):
            why = "`listen` and `certificate` of [tls] go together: give both, or neither"
            raise PydanticCustomError("tls", "{why}", {"why": why})
        return self
