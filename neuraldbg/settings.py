"""Every budget and every threshold that a user may want to change.

Order: argument > environment `NEURALDBG_*` > `[tool.neuraldbg]` in pyproject.toml > default. Thresholds of a mechanism
(what counts as a dead layer) are constants beside the detector or rule that uses them, with their reason.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    PyprojectTomlConfigSettingsSource,
    SettingsConfigDict,
)

from neuraldbg.switch import is_off


class Settings(BaseSettings):
    """Budgets and thresholds of one session; unknown names are refused.

    enabled: False (or NEURALDBG=0, which goes before NEURALDBG_ENABLED) makes every session a no-op.
    dense_steps, dense_seconds: record every step until either is used up, then at most every `sparse_every`-th.
    overhead_budget: share of the training's time that watching may take then (the dense steps' debt is paid back).
    cadence: record every k-th step from the start instead; two runs of one seed then give the same Diagnosis.
    threshold_vanishing, threshold_exploding: RMS gradients beyond which a layer enters that state without a
    baseline; the values of the first NeuralDBG. Alone they never make a verdict of failure.
    coupling_window: steps within which two events can be coupled.
    replay: where a step first turns non-finite on a CPU, run its batch once more to name the operator, within
    replay_seconds; once a session (docs/design/replay.md).
    max_events: events kept; confident and recent ones stay, first occurrences are never dropped.
    memory_mb: upper bound for accumulators and copies, beside 1 % of the model's own memory.
    journal_dir (NEURALDBG_DIR): write a JSONL journal there (one file a session); journal_mb caps it.
    """

    model_config = SettingsConfigDict(
        env_prefix="NEURALDBG_", pyproject_toml_table_header=("tool", "neuraldbg"), extra="forbid"
    )

    enabled: bool = True
    dense_steps: int = Field(500, ge=1)
    dense_seconds: float = Field(60.0, gt=0)
    sparse_every: int = Field(10, ge=1)
    overhead_budget: float = Field(0.02, gt=0, le=1)
    cadence: int | None = Field(None, ge=1)
    threshold_vanishing: float = Field(1e-6, gt=0)
    threshold_exploding: float = Field(1e3, gt=0)
    coupling_window: int = Field(5, ge=0)
    replay: bool = True
    replay_seconds: float = Field(10.0, gt=0)
    max_events: int = Field(2000, ge=10)
    memory_mb: float = Field(64.0, gt=0)
    journal_dir: Path | None = None
    journal_mb: float = Field(64.0, gt=0)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        folder = os.environ.get("NEURALDBG_DIR")
        short = InitSettingsSource(settings_cls, {"journal_dir": folder} if folder else {})
        switch = InitSettingsSource(settings_cls, {"enabled": False} if is_off() else {})
        return init_settings, switch, env_settings, short, PyprojectTomlConfigSettingsSource(settings_cls)


def make(**changes: Any) -> Settings:
    """Settings with these fields; an unknown field is an error that lists the known ones."""
    unknown = sorted(set(changes) - set(Settings.model_fields))
    if unknown:
        known = ", ".join(sorted(Settings.model_fields))
        raise TypeError(f"unknown setting {unknown[0]!r}; the settings are: {known}")
    return Settings(**changes)
