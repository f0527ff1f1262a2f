"""The trainings that docs/sweeps.md compares: some failed, at the higher rates."""

from pathlib import Path

from neuraldbg import CausalHypothesis, Diagnosis, Verdict
from neuraldbg.record import OptimizerFacts, RunFacts
from neuraldbg.report import save

hypothesis = CausalHypothesis("optimizer_instability", "learning_rate_too_high", None, 3, 0.8, "The loss grows")
for k in range(12):
    failed = k >= 8
    diagnosis = Diagnosis(
        Verdict.FAILED if failed else Verdict.HEALTHY,
        0.9 if failed else 0.1,
        hypotheses=(hypothesis,) if failed else (),
        facts=RunFacts(optimizers=(OptimizerFacts("SGD", (0.01 * (k + 1),)),)),
        steps=100,
    )
    save(diagnosis, Path("neuraldbg_runs") / str(k) / "diagnosis.json")
