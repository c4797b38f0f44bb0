"""docs/api.md, every public name on one page, and docs/reference.md, the same with the whole docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import fill

import griffe
from names import SECTIONS, attributes, errors, find, first, groups, markdown, public, remark, renames, shown, signature

from xq.upgrading.verbs import VERBS

API = """
# The API on one page

Every public name of xq, with its signature and the first sentences of its description. Its link leads to the whole
description in [reference.md](reference.md); [errors.md](errors.md) has the errors. A name without a module is one of
`xq`: `xq.upgrade`. `...` as a default is an argument that is not given. T is the type of the model's instances.
"""

REFERENCE = """
# Reference

[api.md](api.md) has the same names on one page, and [errors.md](errors.md) the errors.
"""

ASYNCIO = "Methods of Queue, each with the same arguments, to be awaited: {names}."


def api() -> str:
    """docs/api.md"""
    links = dict(zip(_reference_names(), _slugs(), strict=True))
    return "\n\n".join([API.strip(), *_api(links)]) + "\n"


def reference() -> str:
    """docs/reference.md"""
    return "\n\n".join([REFERENCE.strip(), *_reference()]) + "\n"


def _api(links: dict[str, str]) -> Iterator[str]:
    for section in SECTIONS:
        yield from _begun(section.title, section.about)
        for name in section.names:
            found = find(name)
            yield f"### [{title(name)}](reference.md#{links[title(name)]})"
            if (told := signature(found)) != found.name:
                yield wrapped(f"`{told}`")
            yield wrapped(first(found))
            if not isinstance(found, griffe.Class):
                continue
            if found.name == "Aio":
                yield wrapped(ASYNCIO.format(names=", ".join(f"`{each}`" for each in _awaited(found))))
            items = [_field(field) for field in attributes(found)]
            for comment, members in _groups(found).items():
                if comment and items:
                    yield "\n".join(items)
                    items = []
                if comment:
                    yield f"*{comment[0].upper()}{comment[1:]}*"
                items += [_item(found, member, links) for member in members]
            if items:
                yield "\n".join(items)
    yield "## Errors"
    yield "\n".join(
        wrapped(f"[{error.name}](errors.md#{error.name.lower()}): {first(error)}", "- ") for error in errors()
    )


def _item(found: griffe.Class, member: griffe.Object, links: dict[str, str]) -> str:
    if other := renames(member):
        return f"- `{member.name}`: another name of `{other}`"
    link = f"[`{member.name}`](reference.md#{links[f'{found.name}.{member.name}']})"
    rest = signature(member).removeprefix(member.name)
    return wrapped(f"{link}`{rest}`: {first(member)}", "- ")


def _reference() -> Iterator[str]:
    for section in SECTIONS:
        yield from _begun(section.title, section.about)
        for name in section.names:
            found = find(name)
            yield f"### {title(name)}"
            if signature(found) != found.name:
                yield block(signature(found))
            if told := markdown(found):
                yield told
            if not isinstance(found, griffe.Class):
                continue
            if found.name == "Aio":
                yield wrapped(ASYNCIO.format(names=", ".join(f"`{each}`" for each in _awaited(found))))
            if fields := attributes(found):
                yield "\n".join(_field(field) for field in fields)
            for member in _described(found):
                yield f"#### {found.name}.{member.name}"
                yield block(signature(member))
                yield markdown(member)


def _reference_names() -> Iterator[str]:
    """Yield every name that has a heading in docs/reference.md, and the titles of its sections, in their order."""
    list(shown())
    for section in SECTIONS:
        yield section.title
        for name in section.names:
            yield title(name)
            found = find(name)
            if isinstance(found, griffe.Class):
                yield from (f"{found.name}.{member.name}" for member in _described(found))


def _slugs() -> Iterator[str]:
    """Yield the anchors of these headings as GitHub and MyST make them: the second of a name ends with -1."""
    used: dict[str, int] = {}
    for name in _reference_names():
        slug = re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-")
        used[slug] = used.get(slug, -1) + 1
        yield f"{slug}-{used[slug]}" if used[slug] else slug


def title(name: str) -> str:
    """Return the name under which a program imports something; of what it does not import, the name alone."""
    if name.startswith(("aio.", "engine.", "operators.", "pipeline.")):
        return name.rpartition(".")[2]
    return name.removeprefix("adapters.")


def _begun(heading: str, about: str) -> Iterator[str]:
    yield f"## {heading}"
    yield wrapped(about.format(verbs=", ".join(f"`{verb}`" for verb in VERBS)))


def _groups(found: griffe.Class) -> dict[str, list[griffe.Object]]:
    if found.name == "Aio":
        return {"": list(_described(found))}
    return groups(found)


def _described(found: griffe.Class) -> Iterator[griffe.Object]:
    """Yield the methods and properties that say something of their own."""
    for members in groups(found).values():
        yield from (member for member in members if not renames(member) and member.docstring)


def _awaited(found: griffe.Class) -> list[str]:
    return [name for name, member in public(found).items() if not member.docstring]


def _field(field: griffe.Attribute) -> str:
    told = remark(field)
    return wrapped(f"`{signature(field)}`" + (f" ({told})" if told else ""), "- ")


def block(text: str) -> str:
    """Return a signature as a block, with a line for each argument if it is long."""
    if len(text) > 100 and "(" in text:
        name, _, rest = text.partition("(")
        inside, end = _split(rest)
        text = f"{name}(\n" + "".join(f"    {part},\n" for part in inside) + end
    return f"```python\n{text}\n```"


def _split(text: str) -> tuple[list[str], str]:
    """Return the arguments up to the bracket that ends them, and the rest."""
    parts, depth = [""], 0
    for place, letter in enumerate(text):
        if letter in ")]}" and not depth:
            return [part.strip() for part in parts if part.strip()], text[place:]
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    raise ValueError(f"{text} has no end")


def wrapped(text: str, bullet: str = "") -> str:
    """Return a paragraph in lines of 120 characters: a line may end within code as well, where it counts as a blank."""
    indent = " " * len(bullet)
    return fill(bullet + text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
