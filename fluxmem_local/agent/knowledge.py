"""Knowledge: what goes into memory by hand and out of it again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from fluxmem_local.errors import BlankTextError, InvalidInputError, NotFoundError
from fluxmem_local.graph import DistillEdge, EpisodicNode, Node, ProceduralNode, SemanticNode, SkillVersion
from fluxmem_local.interfaces import BaseEmbedder
from fluxmem_local.memory_store import MemoryStore, Receipt, Transaction
from fluxmem_local.results import ByKey
from fluxmem_local.retention import RetentionRule
from fluxmem_local.stages.rescoring import rescored
from fluxmem_local.storage.checks import check_text
from fluxmem_local.storage.filters import check_filters
from fluxmem_local.storage.times import Time, period
from fluxmem_local.text import HEADINGS, chunk_document, content_key, is_blank, is_markdown
from fluxmem_local.types import FloatArray, Layer, Origin, Scope

from .arguments import check_flag, check_function, check_id, check_origin, listed, listed_ids
from .embedding import given_vector

__all__ = ["IngestReport", "Knowledge"]

# Between two words on progress.
_FACTS_AT_ONCE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestReport(ByKey):
    """What became of one source: its nodes' ids in their order, and how many of them were new.

    ``unchanged`` says that this very content of the source was taken in before, and nothing was done; ``removed``
    are facts of an earlier content of it that neither it nor another source states any more; ``updated`` are known
    facts that took over metadata.
    """

    source: str
    ids: tuple[str, ...] = ()
    num_new: int = 0
    removed: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    unchanged: bool = False


class Knowledge:
    """Adds, updates and forgets nodes; embeds what it adds, and never calls a language model."""

    def __init__(self, store: MemoryStore, embedder: BaseEmbedder | None) -> None:
        self._store = store
        self._embedder = embedder

    async def add_text(
        self,
        text: str,
        *,
        source: str,
        chunk_size: int,
        metadata: Mapping[str, Any] | None,
        scope: Scope,
        markdown: bool | None = None,
        added_by: Origin | str = Origin.USER,
    ) -> list[str]:
        """Store a text as facts of at most ``chunk_size`` characters, and return their ids in the text's order.

        The facts of a Markdown document have the headings that they stand under in their metadata, as ``headings``.
        ``markdown`` None tells one by the suffix of ``source``.

        Raises:
            BlankTextError: the text has no visible character.
            InvalidInputError: ``chunk_size`` is below 1, or the text is no text.
        """
        check_content(text)
        check_text(source, "source")
        if metadata is not None and not isinstance(metadata, Mapping):
            raise InvalidInputError(f"metadata={metadata!r:.200} must be a mapping, as {{'team': 'ops'}}")
        if markdown is None:
            markdown = is_markdown(source)
        check_flag("markdown", markdown)
        origin = check_origin("added_by", added_by)
        facts = [
            SemanticNode(
                content=chunk.content,
                source=source,
                chunk_index=index,
                metadata={**({HEADINGS: chunk.headings} if chunk.headings else {}), **(metadata or {})},
                scope=scope,
                added_by=origin,
            )
            for index, chunk in enumerate(chunk_document(text, chunk_size, markdown=markdown))
        ]
        return await self.add_nodes(facts)

    async def add_nodes(self, nodes: Sequence[Node]) -> list[str]:
        """Store nodes of any layer under their own ids, in one transaction.

        Raises:
            BlankTextError: a node without visible content.
            InvalidInputError: something that is no node, or an id that is taken by other content.
            DimensionError: a node brings a vector of the wrong size.
            NotFoundError: a skill whose source episode the memory does not hold.
        """
        ready = await self._embedded(listed("nodes", nodes, "nodes"))
        return await asyncio.to_thread(self._add, ready)

    async def ingest(
        self,
        source: str,
        facts: Sequence[SemanticNode],
        digest: str | None,
        scope: Scope,
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> IngestReport:
        """Store a source's facts with the digest of its content, all or nothing; known content is passed over.

        Facts that an earlier content of this source held, and that no source states any more, are forgotten; those that
        it states still get the place and metadata that it gives them now.
        """
        check_text(source, "source")
        if digest is not None:
            check_text(digest, "digest")
        check_function("on_progress", on_progress)
        facts = listed("facts", facts, "SemanticNode values")
        for fact in facts:
            if not isinstance(fact, SemanticNode):
                raise InvalidInputError(f"{fact!r:.200} is no fact; give SemanticNode values")
            check_content(fact.content)
        known = self._store.ingested(source, scope) if digest is not None else None
        if known is not None and known == digest:
            return IngestReport(source=source, unchanged=True)
        # What the source stated before and states still is not counted again: it was not said once more.
        earlier = {} if known is None else self._facts_of(source, scope)
        fresh = [fact for fact in facts if content_key(fact.content) not in earlier]
        ready: list[Node] = []
        for start in range(0, len(fresh), _FACTS_AT_ONCE):
            part = await self._embedded(fresh[start : start + _FACTS_AT_ONCE])
            ready += part
            if on_progress is not None:
                on_progress(len(part))
        return await asyncio.to_thread(self._ingest, source, facts, ready, earlier, digest, scope)

    async def update(self, id: str, content: str, *, added_by: Origin | str = Origin.USER) -> Node:
        """Give a node new content; metadata, links and counts stay, the old content goes to its history.

        Whoever wrote the new content counts as who added the node, but for episodes.

        Raises:
            NotFoundError: no node of this id.
            BlankTextError: the content has no visible character.
        """
        check_id("id", id)
        check_content(content)
        origin = check_origin("added_by", added_by)
        old = self._store.get(id)
        if content == old.content:
            return old
        new = _with_content(old, content)
        if not isinstance(old, EpisodicNode):
            new = replace(new, added_by=origin, confirmed_at=None)
        if self._embedder is not None:
            new = replace(new, embedding=await self._embedder.embed_text(content))
        await asyncio.to_thread(self._replace, new)
        return self._store.get(id)

    async def forget(
        self,
        ids: Sequence[str] | str | None = None,
        *,
        source: str | None = None,
        filters: Mapping[str, Any] | None = None,
        scope: Scope | None = None,
        before: Time | None = None,
        dry_run: bool = False,
        purge: bool = False,
    ) -> Receipt:
        """Remove nodes with all that hangs on them: by ids, or by source or filters, scope and age.

        What quoted them and lost words is embedded anew, and skills that lost a source are scored anew.

        Raises:
            InvalidInputError: nothing was named, a blank source, filters or an age that cannot be read, ids together
                with something else, or filters together with a source.
            NotFoundError: the memory holds no such id, source or scope, or nothing that meets the filters.
        """
        check_flag("dry_run", dry_run)
        check_flag("purge", purge)
        if ids is not None:
            ids = listed_ids("ids", [ids] if isinstance(ids, str) else ids)
        if source is not None:
            check_text(source, "source")
            if is_blank(source):
                raise InvalidInputError(
                    f"source={source!r} is blank, which every fact has that was added without one; to forget exactly "
                    f"those, give their ids: [node.id for node in memory.store.select(source={source!r})]"
                )
        check_filters(filters)
        if before is not None:
            period(before, "before")
        receipt = await asyncio.to_thread(
            self._store.forget,
            ids=ids,
            source=source,
            filters=filters,
            scope=scope,
            before=before,
            dry_run=dry_run,
            purge=purge,
        )
        if not dry_run:
            await self.renew(receipt)
        return receipt

    async def retain(self, rules: Sequence[RetentionRule], *, dry_run: bool) -> tuple[tuple[str, str], ...]:
        """Forget what the rules of retention do not keep; return the ids that went, or would go, with the reason."""
        receipt, due = await asyncio.to_thread(self._retain, rules, dry_run)
        if not dry_run:
            await self.renew(receipt)
        return tuple((id, due.get(id, "learned from those alone")) for id in receipt.removed)

    def _retain(self, rules: Sequence[RetentionRule], dry_run: bool) -> tuple[Receipt, dict[str, str]]:
        with self._store.transaction() if not dry_run else nullcontext():
            due = {id: why for _, ids in self._store.due(rules, now=time.time()) for id, why in ids.items()}
            return (self._store.forget(ids=list(due), dry_run=dry_run) if due else Receipt()), due

    async def renew(self, receipt: Receipt) -> None:
        """Make anew what followed from what is gone: vectors of changed texts, and scores of skills."""
        if self._embedder is not None:
            self._embedder.clear_cache()
        changed = self._store.get_many(sorted(self._store.present([id for id, _ in receipt.changed])))
        bare = [node for node in changed if node.embedding is None]
        skills = [node for node in changed if isinstance(node, ProceduralNode) and node.pems_score is None]
        if bare and self._embedder is not None:
            vectors = await self._embedder.embed_batch([node.content for node in bare])
            await asyncio.to_thread(self._set_embeddings, [node.id for node in bare], vectors)
        if skills:
            await asyncio.to_thread(self._rescore, [node.id for node in skills])

    def confirm(self, ids: Sequence[str] | str) -> list[str]:
        """Trust what an agent wrote by itself; return those of the ids that were not trusted before.

        Raises:
            NotFoundError: the memory holds no such id; nothing was changed.
        """
        ids = listed_ids("ids", [ids] if isinstance(ids, str) else ids)
        with self._store.transaction() as change:
            doubted = [node.id for node in self._store.get_many(ids) if not node.trusted]
            change.confirm(doubted)
        return doubted

    async def _embedded(self, nodes: Sequence[Node]) -> list[Node]:
        for node in nodes:
            if not isinstance(node, (SemanticNode, EpisodicNode, ProceduralNode)):
                raise InvalidInputError(
                    f"{type(node).__name__} is no node; give SemanticNode, EpisodicNode or ProceduralNode values"
                )
            check_content(node.content)
        if self._embedder is None:
            return [replace(node, embedding=None) for node in nodes]
        dimension = self._embedder.dimension
        given = {
            position: given_vector(node, dimension) for position, node in enumerate(nodes) if node.embedding is not None
        }
        missing = [position for position in range(len(nodes)) if position not in given]
        made = await self._embedder.embed_batch([nodes[position].content for position in missing])
        vectors = given | dict(zip(missing, made, strict=True))
        return [replace(node, embedding=vectors[position]) for position, node in enumerate(nodes)]

    def _set_embeddings(self, ids: Sequence[str], vectors: FloatArray) -> None:
        with self._store.transaction() as change:
            # Somebody may have forgotten one of them meanwhile.
            there = self._store.present(ids)
            kept = [place for place, id in enumerate(ids) if id in there]
            change.set_embeddings([ids[place] for place in kept], vectors[kept])

    def _rescore(self, ids: Sequence[str]) -> None:
        with self._store.transaction() as change:
            for node in self._store.get_many(sorted(self._store.present(ids))):
                if isinstance(node, ProceduralNode):
                    change.replace(rescored(self._store, node))

    def _add(self, nodes: Sequence[Node]) -> list[str]:
        with self._store.transaction() as change:
            ids = change.add_nodes(nodes)
            change.add_edges(self._distill_edges(nodes))
            return ids

    def _distill_edges(self, nodes: Sequence[Node]) -> list[DistillEdge]:
        """Link skills with their source episodes.

        Raises:
            NotFoundError: the memory does not hold one of them.
        """
        skills = [node for node in nodes if isinstance(node, ProceduralNode)]
        sources = dict.fromkeys(id for skill in skills for id in skill.source_episode_ids)
        unknown = next((id for id in sources if not self._is_episode(id)), None)
        if unknown is not None:
            raise NotFoundError(
                f"no episode {unknown!r} in this memory, which a skill names as its source; nothing was stored; "
                "add the episode before or with the skill, or leave source_episode_ids out"
            )
        return [DistillEdge(source_id=id, target_id=skill.id) for skill in skills for id in skill.source_episode_ids]

    def _is_episode(self, id: str) -> bool:
        try:
            return self._store.get(id).layer is Layer.EPISODIC
        except NotFoundError:
            return False

    def _replace(self, node: Node) -> None:
        with self._store.transaction() as change:
            change.replace(node, reason="updated by hand")

    def _facts_of(self, source: str, scope: Scope) -> dict[str, str]:
        """Map the content keys of a source's facts to their ids."""
        found = self._store.select(layers=(Layer.SEMANTIC,), source=source, scope=scope)
        return {content_key(node.content): node.id for node in found if node.scope == scope}

    def _ingest(
        self,
        source: str,
        facts: Sequence[SemanticNode],
        fresh: Sequence[Node],
        earlier: Mapping[str, str],
        digest: str | None,
        scope: Scope,
    ) -> IngestReport:
        with self._store.transaction() as change:
            added = change.add_nodes(fresh)
            ids_by_key = {**earlier, **dict(zip((content_key(node.content) for node in fresh), added, strict=True))}
            ids = tuple(ids_by_key[content_key(fact.content)] for fact in facts)
            self._refresh(change, facts, earlier)
            gone = [id for id in earlier.values() if id not in ids and self._is_stated_once(id)]
            removed = self._store.forget(ids=gone, quotes_too=False).removed if gone else ()
            if digest is not None:
                change.set_ingested(source, scope, digest)
        new = {node.id for node in fresh}.intersection(added)
        updated = tuple(id for id in dict.fromkeys(ids) if id in change.told and id not in new)
        return IngestReport(source=source, ids=ids, num_new=len(new), removed=removed, updated=updated)

    def _refresh(self, change: Transaction, facts: Sequence[SemanticNode], earlier: Mapping[str, str]) -> None:
        told: dict[str, SemanticNode] = {}
        for fact in facts:
            if (id := earlier.get(content_key(fact.content))) is not None:
                told.setdefault(id, fact)
        for node in self._store.get_many(list(told)):
            fact = told[node.id]
            change.tell(node.id, fact)
            if not isinstance(node, SemanticNode) or node.source != fact.source:
                continue
            # Which headings it stands under follows from its place alone, so that the last ones go with the last place.
            metadata = {key: value for key, value in node.metadata.items() if key != HEADINGS} | dict(fact.metadata)
            if (node.chunk_index, node.metadata.get(HEADINGS)) != (fact.chunk_index, fact.metadata.get(HEADINGS)):
                change.replace(replace(node, chunk_index=fact.chunk_index, metadata=metadata))

    def _is_stated_once(self, id: str) -> bool:
        node = self._store.get(id)
        return isinstance(node, SemanticNode) and node.count == 1


def check_content(text: Any) -> None:
    """Refuse what cannot be content.

    Raises:
        InvalidInputError: no string, or one that no file could hold (a lone surrogate).
        BlankTextError: no visible character.
    """
    check_text(text, "the content")
    if is_blank(text):
        raise BlankTextError("the text is blank; give text with at least one visible character")


def _with_content(node: Node, content: str) -> Node:
    if isinstance(node, ProceduralNode):
        ended = SkillVersion(
            version=node.version,
            skill_text=node.skill_text,
            pems_score=node.pems_score,
            ended_because="updated by hand",
        )
        return replace(
            node,
            content=content,
            skill_text=content,
            version=node.version + 1,
            version_history=(*node.version_history, ended),
            pems_score=None,
            embedding=None,
        )
    if isinstance(node, EpisodicNode) and node.task_description == node.content:
        return replace(node, content=content, task_description=content, embedding=None)
    return replace(node, content=content, embedding=None)
