"""Control and uncertainty: value nets on their own targets, an actor with a critic, a policy, learned variances."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.corpus import data
from benchmarks.corpus.loops import explained, outputs
from benchmarks.corpus.plan import Batch, Options, Plan, Program, Record


class QNet(nn.Module):
    def __init__(self, o: Options, width: int, actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 40), o.activation(nn.ReLU), nn.Linear(40, 40), o.activation(nn.ReLU))
        self.value = nn.Linear(40, actions)

    def forward(self, s: Tensor) -> Tensor:
        found: Tensor = self.value(self.body(s))
        return found


def _values(o: Options, width: int, actions: int, optimizer: str, rate: float) -> Plan:
    """Q-learning on logged steps; the target is reward plus half of the next value, the states stay in bounds.

    Trait "stretch": next states lie outside the seen ones and are weighted by nearly one, so that the values feed
    back on themselves.
    """
    torch.manual_seed(o.seed)
    g = data.generator(o.seed)
    s = 0.5 + 0.5 * torch.rand(2000 + data.HELD, width, generator=g)
    a = torch.randint(0, actions, (len(s),), generator=g)
    taste = torch.randn(actions, width, generator=g)
    reward = (taste[a] * s).sum(1) * 0.7
    (s, a, reward), (hs, ha, hr) = data.split(s, a, reward)
    net = QNet(o, width, actions)
    stretch, gamma = (1.6, 0.99) if o.has("stretch") else (1.0, 0.3)
    noise = torch.Generator().manual_seed(o.seed + 11)

    def run(s: Tensor, a: Tensor) -> Tensor:
        found: Tensor = net(s).gather(1, a.unsqueeze(1)).squeeze(1)
        return found

    def bootstrap(step: int, batch: Batch) -> Batch:
        (s, a), reward = batch
        with torch.no_grad():
            follow = stretch * s + 0.05 * torch.randn(s.shape, generator=noise)
            return (s, a), reward + gamma * net(follow).max(1).values

    def score(plan: Plan) -> float:
        """Correlation of held-out values with the rewards."""
        found = torch.corrcoef(torch.stack([outputs(plan), plan.held_y]))[0, 1]
        return float(found)

    plan = Plan(
        seed=o.seed,
        models={"model": net},
        x=(s, a),
        y=reward,
        held_x=(hs, ha),
        held_y=hr,
        loss=F.mse_loss,
        score=score,
        chance=0.0,
        good=0.6,
        rate=rate,
        optimizer=optimizer,
        steps=240,
        size=64,
        hidden=("body.0", "body.2"),
        acts=("body.1", "body.3"),
        head="value",
        forward=run,
    )
    plan.batches.append(bootstrap)
    return plan


def q_values(o: Options) -> Plan:
    return _values(o, 6, 3, "sgd", 1.5e-2)


def q_wide(o: Options) -> Plan:
    return _values(o, 10, 4, "adam", 1e-3)


class Actor(nn.Module):
    def __init__(self, o: Options, width: int, actions: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, 40), o.activation(nn.ReLU), nn.Linear(40, actions))
        self.squash = nn.Tanh()

    def forward(self, s: Tensor) -> Tensor:
        found: Tensor = self.squash(self.body(s))
        return found


class Critic(nn.Module):
    def __init__(self, width: int, actions: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(width + actions, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1)
        )

    def forward(self, s: Tensor, a: Tensor) -> Tensor:
        found: Tensor = self.net(torch.cat([s, a], 1)).squeeze(-1)
        return found


def _best(s: Tensor, actions: int) -> Tensor:
    return 0.5 * torch.tanh(s[:, :actions])


def deterministic(plan: Plan, record: Record) -> None:
    """A critic learns the reward of actions, the actor climbs the critic; the loss told is the actor's."""
    actor, critic = plan.models["actor"], plan.models["critic"]
    g = torch.Generator().manual_seed(plan.seed + 29)
    actions, unit = plan.info["actions"], plan.info.get("unit", 1.0)
    critic_opt = plan.optimize(critic.parameters())
    actor_opt = plan.optimize(actor.parameters(), plan.rate / 2 * plan.info.get("actor_push", 1.0))
    base = [opt.param_groups[0]["lr"] for opt in (critic_opt, actor_opt)]
    for step in range(plan.steps):
        for opt, rate in zip((critic_opt, actor_opt), base, strict=True):
            opt.param_groups[0]["lr"] = rate * plan.factor(step)
        s = torch.randn(plan.size, plan.x[0].shape[1], generator=g)
        (seen,), _ = plan.corrupted(step, ((unit * s,), s))
        with torch.no_grad():
            noise = 0.3 * torch.randn(plan.size, actions, generator=g)
            a = (actor(seen) + noise).clamp(-1, 1)
        reward = 1 - (a - _best(s, actions)).pow(2).sum(1)
        loss = F.mse_loss(critic(seen, a), reward)
        if plan.clears(step):
            critic_opt.zero_grad()
        loss.backward()
        critic_opt.step()
        value = -critic(seen, actor(seen)).mean() * plan.weight(step)
        if plan.clears(step):
            actor_opt.zero_grad()
        value.backward()
        actor_opt.step()
        record(value.item())


def _reward(plan: Plan) -> float:
    """The mean reward of the actor's own actions, 1 at best."""
    s, actions = plan.held_x[0], plan.info["actions"]
    actor = plan.models["actor"]
    with torch.no_grad():
        a = actor(plan.info.get("unit", 1.0) * s)
    return 1 - float((a - _best(s, actions)).pow(2).sum(1).mean())


def _agent(o: Options, width: int, actions: int, size: int) -> Plan:
    torch.manual_seed(o.seed)
    s = torch.randn(256, width, generator=data.generator(o.seed))
    return Plan(
        seed=o.seed,
        models={"actor": Actor(o, width, actions), "critic": Critic(width, actions)},
        x=(s,),
        y=s,
        held_x=(s,),
        held_y=s,
        loss=F.mse_loss,
        score=_reward,
        chance=0.0,
        good=0.6,
        rate=2e-3,
        steps=220,
        size=size,
        loop=deterministic,
        info={"actions": actions},
    )


def actor_critic(o: Options) -> Plan:
    return _agent(o, 4, 2, 64)


def actor_wide(o: Options) -> Plan:
    return _agent(o, 8, 3, 48)


class Policy(nn.Module):
    def __init__(self, o: Options) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), o.activation(nn.Tanh))
        self.logits, self.value = nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, s: Tensor) -> tuple[Tensor, Tensor]:
        h = self.body(s)
        return self.logits(h), self.value(h).squeeze(-1)


def policy(o: Options) -> Plan:
    """Policy gradient with a learned baseline on a contextual bandit: the loss itself means little."""
    torch.manual_seed(o.seed)
    (s, best), (hs, hbest) = data.split(*data.blobs(o.seed, 2400, 8, 3, 1.0))
    dice = torch.Generator().manual_seed(o.seed + 31)

    def loss(out: tuple[Tensor, Tensor], best: Tensor) -> Tensor:
        logits, value = out
        chosen = logits.detach().softmax(1).multinomial(1, generator=dice).squeeze(1)
        reward = (chosen == best).float()
        log = logits.log_softmax(1)
        gain = (reward - value.detach()) * log.gather(1, chosen.unsqueeze(1)).squeeze(1)
        entropy = -(log.exp() * log).sum(1).mean()
        return -gain.mean() + 0.5 * F.mse_loss(value, reward) - 0.01 * entropy

    def score(plan: Plan) -> float:
        return (outputs(plan).argmax(1) == plan.held_y).float().mean().item()

    return Plan(
        seed=o.seed,
        models={"model": Policy(o)},
        x=(s,),
        y=best,
        held_x=(hs,),
        held_y=hbest,
        loss=loss,
        score=score,
        chance=1 / 3,
        good=0.6,
        rate=8e-3,
        steps=200,
        size=64,
        hidden=("body.0",),
        acts=("body.1",),
        head="logits",
    )


class Spread(nn.Module):
    """Mean and spread of a target, the spread kept off zero by a floor unless it is "floorless"."""

    def __init__(self, o: Options) -> None:
        super().__init__()
        self.floor = 0.0 if o.has("floorless") else 0.05
        self.trunk = nn.Sequential(nn.Linear(4, 48), o.activation(nn.Tanh), nn.Linear(48, 48), o.activation(nn.Tanh))
        self.mean, self.raw = nn.Linear(48, 1), nn.Linear(48, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.trunk(x)
        return self.mean(h).squeeze(-1), self.raw(h).squeeze(-1).exp() + self.floor


def likelihood(out: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
    mean, spread = out
    return (spread.log() + 0.5 * ((y - mean) / spread).pow(2)).mean()


def uncertain(o: Options) -> Plan:
    """Regression with a learned spread: a loss that may be negative."""
    torch.manual_seed(o.seed)
    (x, y), (hx, hy) = data.split(*data.curve(o.seed, 2000, 4, noise=0.2))
    return Plan(
        seed=o.seed,
        models={"model": Spread(o)},
        x=(x,),
        y=y.squeeze(1),
        held_x=(hx,),
        held_y=hy.squeeze(1),
        loss=likelihood,
        score=explained,
        chance=0.0,
        good=0.3,
        rate=4e-3,
        steps=220,
        size=64,
        hidden=("trunk.0", "trunk.2"),
        acts=("trunk.1", "trunk.3"),
        head="mean",
    )


_BASE = frozenset({"hidden", "acts", "float", "head"})
_PAIR = frozenset({"adam", "float", "actor"})
PROGRAMS = (
    Program("q_values", "fit", _BASE | {"sgd", "bootstraps"}, q_values),
    Program("q_wide", "test", _BASE | {"adam", "bootstraps"}, q_wide),
    Program("actor_critic", "fit", _PAIR, actor_critic),
    Program("actor_wide", "test", _PAIR, actor_wide),
    Program("policy", "test", _BASE | {"adam", "policy"}, policy),
    Program("uncertain", "check", _BASE | {"adam", "spread", "raw", "scalar"}, uncertain),
)
