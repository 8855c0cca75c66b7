"""The median decode step by role."""

from collections.abc import Sequence

from decodescope.analyzer.schema.step_report import RoleReport
from decodescope.analyzer.tables.columns import (
    COUNT,
    DURATION,
    GIGABYTES_PER_S,
    PERCENT,
    TEXT,
    Column,
    Mark,
    Table,
)
from decodescope.analyzer.vocabulary.class_colors import ROLE_FAMILIES
from decodescope.analyzer.vocabulary.words import ROLE_KNOWN_BY


def roles_table(roles: Sequence[RoleReport]) -> Table[RoleReport]:
    """One row for each role; they add up to the busy time of the step."""
    return Table(
        "roles",
        _COLUMNS,
        roles,
        key=lambda role: role.role,
        mark=lambda role: Mark("family", ROLE_FAMILIES.get(role.role, "other")),
    )


def _bytes_per_s(role: RoleReport) -> float | None:
    if role.bytes is None or not role.ns_per_step:
        return None
    return role.bytes / role.ns_per_step * 1e9


def _share_of_limit(role: RoleReport) -> float | None:
    if role.limit_ns is None or not role.ns_per_step:
        return None
    return role.limit_ns / role.ns_per_step


_COLUMNS: tuple[Column[RoleReport], ...] = (
    Column("role", "role", TEXT, "What the ops compute."),
    Column("ops_per_step", "ops", COUNT, "The ops of the role.", priority=4, tone="dim"),
    Column("ns_per_step", "time", DURATION, "Attributed time of the ops.", tone="strong"),
    Column("share", "share", PERCENT, "Its part of the busy time of the step.", priority=1, bar=24),
    Column(
        "bytes_per_s",
        "",
        GIGABYTES_PER_S,
        "The bytes that the role must move ÷ its time.",
        _bytes_per_s,
        priority=2,
    ),
    Column(
        "limit_ns",
        "limit",
        DURATION,
        "The least time that its bytes and FLOPs take at the device's peaks.",
        priority=5,
    ),
    Column(
        "share_of_limit",
        "of limit",
        PERCENT,
        "That limit ÷ the measured time.",
        _share_of_limit,
        priority=3,
    ),
    Column(
        "confidence",
        "known by",
        TEXT,
        "Whether the names of its ops tell the role, or their place in the step.",
        text=lambda role: ROLE_KNOWN_BY[role.confidence],
        priority=6,
        tone="dim",
    ),
)
