"""Random work on a memory against a model of a few dicts; then every invariant holds, also after reopening."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from fluxmem_local.graph import EpisodicNode, GroundEdge
from fluxmem_local.memory_store import MemoryStore, Outcome
from fluxmem_local.text import content_key
from fluxmem_local.types import Layer, NodeState, Scope

from .storage.conftest import Maker

WORDS = ("tea", "Tea", "snow is cold", "猫は寝る", "naïve", "a b", "b a", "x" * 40, "éclair", "42")
SCOPES = (Scope(), Scope("ada"), Scope("ben", "coder"))


class MemoryMachine(RuleBasedStateMachine):
    facts = Bundle("facts")
    episodes = Bundle("episodes")

    @initialize(durable=st.booleans())
    def open(self, durable):
        self.make = Maker()
        self.folder = Path(tempfile.mkdtemp()) if durable else None
        self.store = self.make.open(self.folder)
        self.contents: dict[str, tuple[str, Scope, int]] = {}
        self.episode_ids: set[str] = set()
        self.hidden: set[str] = set()
        self.edges: set[tuple[str, str]] = set()
        self.helped: dict[tuple[str, str], int] = {}

    @rule(target=facts, texts=st.lists(st.sampled_from(WORDS), min_size=1, max_size=3), scope=st.sampled_from(SCOPES))
    def add_facts(self, texts, scope):
        nodes = [self.make.fact(text, scope=scope) for text in texts]
        with self.store.transaction() as transaction:
            ids = transaction.add_nodes(nodes)
        for node, id in zip(nodes, ids, strict=True):
            twins = [
                known
                for known, (content, other, _) in self.contents.items()
                if other == scope and content_key(content) == content_key(node.content)
            ]
            assert [id] == (twins or [node.id])
            content, _, count = self.contents.get(id, (node.content, scope, 0))
            self.contents[id] = (content, scope, count + 1)
            self.hidden.discard(id)
        return multiple(*ids)

    @rule(target=episodes, text=st.sampled_from(WORDS))
    def add_episode(self, text):
        node = self.make.episode(text, success=True)
        with self.store.transaction() as transaction:
            transaction.add_nodes([node])
        self.episode_ids.add(node.id)
        return node.id

    @rule(id=facts, number=st.integers(0, 9))
    def replace_content(self, id, number):
        if id not in self.contents:
            return
        text = f"only {id} {number}"
        node = replace(self.store.get(id), content=text, embedding=self.make.vector(text))
        with self.store.transaction() as transaction:
            transaction.replace(node)
        self.contents[id] = (text, *self.contents[id][1:])

    @rule(id=facts)
    def demote(self, id):
        if id in self.contents:
            with self.store.transaction() as transaction:
                transaction.set_state([id], NodeState.DEMOTED)
            self.hidden.add(id)

    @rule(id=facts, episode=episodes)
    def link(self, id, episode):
        if id in self.contents and episode in self.episode_ids:
            with self.store.transaction() as transaction:
                transaction.add_edges([GroundEdge(source_id=id, target_id=episode)])
                transaction.record_outcomes([Outcome(node_id=id, episode_id=episode, helped=1)])
            self.edges.add((id, episode))
            self.helped[id, episode] = self.helped.get((id, episode), 0) + 1

    @rule(id=consumes(facts), forget=st.booleans())
    def delete_fact(self, id, forget):
        if id in self.contents:
            self._delete(id, forget)
            del self.contents[id]
            self.hidden.discard(id)

    @rule(id=consumes(episodes), forget=st.booleans())
    def delete_episode(self, id, forget):
        if id in self.episode_ids:
            self._delete(id, forget)
            self.episode_ids.discard(id)

    @rule(text=st.sampled_from(WORDS))
    def fail_half_way(self, text):
        try:
            with self.store.transaction() as transaction:
                transaction.add_nodes([self.make.fact(text), self.make.episode(text)])
                transaction.delete_nodes(list(self.contents))
                self.store.lexical(Layer.SEMANTIC, text, 3)
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass

    @rule(text=st.sampled_from(WORDS), scope=st.sampled_from((None, *SCOPES)))
    def search(self, text, scope):
        seen = {
            id
            for id, (_, theirs, _) in self.contents.items()
            if id not in self.hidden and (scope is None or scope.sees(theirs))
        }
        near = self.store.nearest(Layer.SEMANTIC, self.make.vector(text), 1000, scope=scope)
        assert {id for id, _ in near} == seen
        assert len(near) == len(seen)
        for id, score in near:
            assert abs(score - float(self.make.vector(self.contents[id][0]) @ self.make.vector(text))) < 1e-4
        assert {id for id, _ in self.store.lexical(Layer.SEMANTIC, text, 1000, scope=scope)} <= seen

    @rule()
    def reopen(self):
        if self.folder is not None:
            before = list(self.store.export_lines())
            self.store.close()
            self.store = self.make.open(self.folder)
            assert list(self.store.export_lines()) == before

    @invariant()
    def same_as_the_model(self):
        if not hasattr(self, "store"):
            return
        nodes = self.store.select(states=tuple(NodeState))
        facts = {n.id: (n.content, n.scope, n.count) for n in nodes if not isinstance(n, EpisodicNode)}
        assert facts == self.contents
        assert {n.id for n in nodes if isinstance(n, EpisodicNode)} == self.episode_ids
        assert {(edge.source_id, edge.target_id) for edge in self.store.edges()} == self.edges
        assert {(o.node_id, o.episode_id): o.helped for o in self.store.outcomes()} == self.helped

    def teardown(self):
        if not hasattr(self, "store"):
            return
        assert self.store.verify().problems == ()
        lines = list(self.store.export_lines())
        self.store.close()
        with MemoryStore.open(None) as copy:
            copy.import_lines(lines)
            assert list(copy.export_lines()) == lines
        if self.folder is not None:
            with MemoryStore.open(self.folder) as again:
                assert list(again.export_lines()) == lines
                assert again.verify().problems == ()
            shutil.rmtree(self.folder)

    def _delete(self, id, forget):
        if forget:
            assert self.store.forget(ids=[id]).removed == (id,)
        else:
            with self.store.transaction() as transaction:
                transaction.delete_nodes([id])
        self.edges = {edge for edge in self.edges if id not in edge}
        self.helped = {pair: count for pair, count in self.helped.items() if id not in pair}


MemoryMachine.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
    database=None,
)
TestMemory = MemoryMachine.TestCase
