"""Four diagnoses built by hand: a failed run, a healthy one, a warning, and one whose names try to break out."""

import math

import pytest

from neuraldbg.diagnosis import CausalGraph, CausalHypothesis, Coupling, Diagnosis, GraphEdge, GraphNode, Verdict
from neuraldbg.events import observed, recovered
from neuraldbg.record import Coverage, ModuleFacts, OptimizerFacts, ParameterFacts, RunFacts

LAYERS = ("encoder.fc1", "encoder.act1", "encoder.fc2", "encoder.act2", "head")
HOSTILE = (
    "<script>alert(1)</script>",
    '"]; x[',
    "a|b|c",
    "```tick`s",
    "line\nbreak\r\n# head",
    "end",
    "--> n0; click n0 href",
    "&amp; <b>bold</b> ]]> -->",
    "style x:y#a;",
    "\x1b[31mred\x00",
)


def facts(names=LAYERS, notes=("5 of 40 steps were not sampled.",)):
    modules = tuple(ModuleFacts(name, "Linear", order=i, parameters=20, trainable=20) for i, name in enumerate(names))
    return RunFacts(
        models=("Sequential",),
        modules=modules,
        parameters=tuple(ParameterFacts(f"{n}.weight", n, 20, 2, "float32", True, 0, 0.1) for n in names),
        optimizers=(OptimizerFacts("SGD", (0.5,), momentum=0.9, parameters=5),),
        structure=frozenset({"residual", "has_norm"}),
        loss_kind="cross_entropy",
        loss_reduction="mean",
        coverage=Coverage(len(names), len(names), 10, 9, 40, 35, "compiled", 0.013, notes),
    )


def layer_graph(names, step=0):
    """A cause, then one event for each name: each brings about the next, and the first also the third and the last."""
    nodes = [GraphNode("cause", "learning_rate_too_high", "cause", step)]
    edges = []
    kinds = ("optimizer_instability", "activation_regime_shift", "gradient_health_transition", "data_anomaly")
    for i, name in enumerate(names):
        nodes.append(GraphNode(f"e{i}", f"observation number {i}", kinds[i % 4], step + i, name, 1 + i % 3))
        edges.append(GraphEdge(nodes[-2].id, f"e{i}", ("causes", "mechanism", "propagates")[min(i, 2)]))
    if len(names) > 4:
        edges += [GraphEdge("e0", "e3"), GraphEdge("e0", f"e{len(names) - 1}"), GraphEdge("cause", "e2")]
    return CausalGraph(tuple(nodes), tuple(edges))


def build_failed(names=LAYERS):
    update = observed("violent_update", 20, names[0], update_lg=-0.1, layers=3)
    grown = observed("activation_growth", 20, names[1], growth_lg=3.4)
    dead = observed("dead_units", 22, names[1], share=0.94, at_start=False, position="hidden")
    dead2 = observed("dead_units", 23, names[3], share=0.6)
    spike = observed("loss_spike", 21, None, decades=1.3, over_chance=4.0, before_over_chance=0.4, recovered=None)
    zero = observed("zero_gradient", 23, names[2], 0.9, share=1.0, parameters=2)
    norm = observed("exploding_gradient", 20, names[4], rms=math.inf, baseline=0.8, growth_lg=4.0)
    plateau = observed("loss_plateau", 26, None, 0.8, skill=1.01, tail_head=0.99, since=26)
    events = (update, grown, norm, spike, dead, zero, dead2, recovered(norm, 24), plateau)
    top = CausalHypothesis(
        failure_type="dead_neurons",
        cause="learning_rate_too_high",
        layer_name=names[0],
        step=20,
        confidence=0.87,
        description=f"Updates as large as the weights detected in layer '{names[0]}' at step 20, "
        "likely due to a learning rate that is too high",
        remedy="Divide the learning rate by 10: SGD(model.parameters(), lr=0.05)",
        evidence=(update, dead, spike),
        evidence_against=(recovered(norm, 24),),
        causal_chain=("violent_update", "activation_growth", "dead_units", "loss_plateau"),
        refuted_by="the same units die with a rate ten times smaller",
        metadata={"calibrated": False, "rates": (0.5, 0.05), "margin": math.nan},
    )
    second = CausalHypothesis(
        failure_type="dead_neurons",
        cause="dead_relu_negative_bias",
        layer_name=names[1],
        step=22,
        confidence=0.21,
        description=f"Neuron death detected in layer '{names[1]}' at step 22, "
        "likely due to a bias that keeps rectified units below zero for every sample",
        remedy="Start the biases at zero",
        evidence=(dead,),
    )
    graph = CausalGraph(
        (
            GraphNode("c", "learning_rate_too_high", "cause", 20),
            GraphNode("a", f"{update.text} in '{names[0]}' (step 20)", "violent_update", 20, names[0]),
            GraphNode("b", grown.text, str(grown.event_type), 20, names[1]),
            GraphNode("s", spike.text, str(spike.event_type), 21),
            GraphNode("d", dead.text, str(dead.event_type), 22, names[1], 2),
            GraphNode("z", zero.text, str(zero.event_type), 23, names[2]),
            GraphNode("p", plateau.text, str(plateau.event_type), 26),
        ),
        (
            GraphEdge("c", "a", "causes"),
            GraphEdge("a", "b"),
            GraphEdge("a", "s"),
            GraphEdge("b", "d"),
            GraphEdge("d", "z"),
            GraphEdge("z", "p"),
            GraphEdge("d", "p", "propagates"),
        ),
    )
    loss = [(i, 2.3 * 0.9**i) for i in range(20)] + [(20, 0.31), (21, 9.1)] + [(i, 2.31) for i in range(22, 40)]
    return Diagnosis(
        Verdict.FAILED,
        0.99,
        hypotheses=(top, second),
        couplings=(Coupling("violent_update", "dead_units", 2, 0.7),),
        graph=graph,
        events=events,
        facts=facts(names),
        series={"loss": tuple(loss), "rate": ((0, 0.5),)},
        steps=40,
    )


@pytest.fixture
def failed():
    return build_failed()


@pytest.fixture
def healthy():
    loss = tuple((i, 2.3 * 0.95**i) for i in range(40))
    return Diagnosis(Verdict.HEALTHY, 0.02, facts=facts(notes=()), series={"loss": loss}, steps=40)


@pytest.fixture
def warning():
    scale = observed("unscaled_input", 0, None, rms_lg=1.4, offset=6.0)
    note = CausalHypothesis(
        "data_anomaly",
        "unnormalised_inputs",
        None,
        0,
        0.4,
        "Inputs of large scale or offset detected in the model's input at step 0, likely due to inputs that are not "
        "normalised",
        remedy="Normalise each feature with the training set's mean and deviation",
        evidence=(scale,),
    )
    return Diagnosis(Verdict.WARNING, 0.2, notes=(note,), events=(scale,), facts=facts(), steps=40)


@pytest.fixture
def unseen():
    """A session that was entered and that no step of a training came by."""
    known = RunFacts(models=("linear",), coverage=Coverage(modules=3, parameters=4))
    return Diagnosis(Verdict.WARNING, 0.5, facts=known)


@pytest.fixture
def hostile():
    failed = build_failed(HOSTILE[:5])
    extra = tuple(observed("dead_units", 30 + i, name, share=0.5, input=name) for i, name in enumerate(HOSTILE))
    return Diagnosis(
        Verdict.FAILED,
        0.9,
        hypotheses=failed.hypotheses,
        graph=layer_graph(HOSTILE),
        events=failed.events + extra,
        facts=facts(HOSTILE, notes=HOSTILE),
        series=failed.series,
        steps=40,
    )
