"""What a user may do, and what a token is good for, in the same four words."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """How far a request may go; each includes those before it."""

    READ = "read"  # look at one's own
    SUBMIT = "submit"  # and submit and steer one's own jobs
    OPERATE = "operate"  # and see and steer the jobs of all, set queues, drain nodes
    ADMIN = "admin"  # and all else: tokens and histories of others, the audit, the site's checks

    @classmethod
    def _missing_(cls, value: object) -> Scope | None:
        return cls.SUBMIT if value == FORMERLY_SUBMIT else None

    def covers(self, other: Scope) -> bool:
        """Whether what needs `other` may be done with this."""
        return _RANK[self] >= _RANK[other]

    def within(self, other: Scope) -> Scope:
        """The narrower of the two."""
        return self if other.covers(self) else other


FORMERLY_SUBMIT = "jobs"  # what `submit` was called before there were operators: in tokens that are still good
_RANK = {scope: rank for rank, scope in enumerate(Scope)}


class Role(StrEnum):
    """What a user is on this site."""

    USER = "user"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def scope(self) -> Scope:
        """As far as such a user may go."""
        return _OF_ROLE[self]


_OF_ROLE = {Role.USER: Scope.SUBMIT, Role.OPERATOR: Scope.OPERATE, Role.ADMIN: Scope.ADMIN}


class Proof(StrEnum):
    """By what a request shows which user sends it."""

    PEER = "peer"  # the kernel says which user is at the other end of the unix socket
    TOKEN = "token"  # a bearer token of EJB's own
    OIDC = "oidc"  # a token that the site's identity provider has signed
    PAGE = "page"  # a token of EJB's own, in the cookie of a browser that has signed in by a link
