"""SKILL.md: nothing is lost on the way through a file, and what is no skill is refused with its path."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fluxmem_local.errors import ImportFormatError
from fluxmem_local.graph import Alternative, Followed, Pitfall, ProceduralNode, Skill, SkillVersion, Slot, Step
from fluxmem_local.storage.skill_md import read_skill, skill_slug, write_skill
from fluxmem_local.types import NodeState, Scope

HARD = (
    "---\nname: x\n---",
    "```\n## Steps\n```yaml steps\n[]\n```",
    "a: b # c",
    "line\r\nwith \x85 and \u2028",
    "- x: [1, {2}",
    "1_000",
    "2020-01-01",
    "yes",
    "~",
    "\ufeff",
    "把红色的杯子放回去 🗄️",
    " leading and trailing \n\n",
    "&anchor *alias",
    "\t\x00\x07",
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(HARD)
steps = st.builds(
    lambda template, word, id: Step(
        template=template,
        words=(word,),
        succeeded_ids=(id,),
        alternatives=(Alternative(template=word, failed_ids=(template,)),),
        followed_by=(Followed(text=id, count=2),),
    ),
    texts,
    texts,
    texts,
)
structures = st.builds(
    lambda name, use, some, value: Skill(
        name=name,
        use=use,
        steps=tuple(some),
        slots=(Slot(number=1, kind=name, values=(value,)),),
        examples=((value,),),
        pitfalls=(Pitfall(action=use, feedback=value, episode_ids=("e",), final=True),),
        description=value,
        unsupported=(use,),
    ),
    texts,
    texts,
    st.lists(steps, max_size=2),
    texts,
)


def as_stored(value: Any) -> Any:
    return json.loads(json.dumps(value))


@given(structures, texts.filter(lambda text: any(map(str.isalnum, text))), texts, st.none() | st.floats(-1, 1))
@settings(max_examples=150, deadline=None)
def test_a_skill_survives_its_file(structure: Skill, text: str, other: str, pems: float | None) -> None:
    node = ProceduralNode(
        skill_text=text,
        version=3,
        version_history=(SkillVersion(version=1, skill_text=other, pems_score=pems, ended_because=text),),
        source_episode_ids=("e1", "e2"),
        pems_score=pems,
        scope=Scope(user=other if other.isalnum() else None),
        state=NodeState.DEMOTED,
        metadata={"structure": as_stored(structure.to_dict()), other: [other, 1.5, None, True, {"a": other}]},
    )
    written = write_skill(node, folder="f", unsafe=[text])
    assert read_skill(written, "f") == node
    # As another system's tools write line ends.
    if "\r" not in written:
        assert read_skill(written.replace("\n", "\r\n"), "f") == node


def test_the_front_matter_is_that_of_agent_skills() -> None:
    node = ProceduralNode(id="s1", skill_text="t", version=2, metadata={"structure": as_stored(SKILL.to_dict())})
    front = yaml.safe_load(write_skill(node, folder="deploy-it").split("---")[1])
    assert front == {
        "name": "deploy-it",
        "description": "Deploy: the [1:app]",
        "metadata": {"fluxmem-form": "1", "fluxmem-id": "s1", "fluxmem-version": "2"},
    }


SKILL = Skill(name="Deploy it!", use="Deploy: the <1:app>", steps=(Step(template="make deploy"),))
NODE = ProceduralNode(id="s1", skill_text="make deploy", metadata={"structure": as_stored(SKILL.to_dict())})
FILE = write_skill(NODE, folder="deploy-it")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Deploy it!", "deploy-it"),
        ("../../etc/passwd", "etc-passwd"),
        ("放回去", "skill-abcdef12"),
        ("a" * 99, "a" * 64),
    ],
)
def test_a_folders_name_is_safe(name: str, expected: str) -> None:
    assert skill_slug(ProceduralNode(id="ABCDEF123", skill_text="t", metadata={"name": name})) == expected


def test_what_was_never_seen_to_succeed_is_marked() -> None:
    assert "## Unsafe\n\nNever seen to succeed; do not run it unchecked:\n\n- rm -rf /\n" in write_skill(
        NODE, folder="f", unsafe=["rm -rf /"]
    )


def test_a_skill_of_another_program_is_its_name_and_text() -> None:
    text = "---\nname: pdf\ndescription: Read PDFs.\nlicense: MIT\n---\n# PDF\n\nUse pdftotext.\n"
    assert read_skill(text, "f") == ("pdf", "Read PDFs.\n\n# PDF\n\nUse pdftotext.")


BOMB = "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no front matter"),
        ("# only a title", "no front matter"),
        ("---\nname: x\n", "no front matter"),
        ("---\n: [\n---\n", "no YAML"),
        ("---\n- a\n---\n", "name and description are needed"),
        ("---\nname: x\n---\n", "name and description are needed"),
        ("---\nname: [x]\ndescription: d\n---\n", "name and description are needed"),
        (f"---\nname: x\ndescription: d\n{BOMB}\n---\n", "aliases are not allowed"),
        ("---\nname: x\ndescription: !!python/object/apply:os.system [ls]\n---\n", "no YAML"),
        ("---\nname: x\ndescription: " + "[" * 3000 + "\n---\n", "no YAML"),
        (FILE.replace("fluxmem-form: '1'", "fluxmem-form: '9'"), "form '9' is unknown"),
        (FILE.replace("yaml steps", "yaml stops"), "'steps' is missing"),
        (FILE.replace("fluxmem-version: '1'", "fluxmem-version: one"), "no skill as fluxmem writes it"),
        (FILE.replace("state: active", "state: flying"), "no skill as fluxmem writes it"),
        (FILE.replace("- template: make deploy", "- template: [1]"), "no structure of a skill"),
        (FILE[: FILE.index("## PEMS")] + "```yaml history\n[]\n", "has no end"),
        (FILE.replace("scope: {}", "scope: []"), "no skill as fluxmem writes it"),
        (FILE.replace("source_episode_ids: []", "source_episode_ids: e1"), "no skill as fluxmem writes it"),
    ],
)
def test_what_is_no_skill_is_refused_with_its_path(text: str, words: str) -> None:
    with pytest.raises(ImportFormatError, match=words) as caught:
        read_skill(text, "skills/x/SKILL.md")
    assert str(caught.value).startswith("skills/x/SKILL.md")
