"""The private names of PyTorch that `graft.load` relies on: what is lacking is found, and nothing is left out."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest
from graft.base.base import Base
from graft.base.private_names import BINDING, PRIVATE, Private, lacking, require_private_names
from graft.core.errors import UsageError
from graft.core.layout import PACKAGES

EACH = [(each, name) for each in PRIVATE for name in each.names]
# Private names of others: packages of torch, Python, IPython, and attributes that Graft itself gives to torch.
_OTHERS = re.compile(
    r"_|_C|_ops|_decomp|_builtins|_functorch|_exit|_inheriting|_initializing|_dict|_stacklevel|_torchdynamo_disable(_msg)?"
    r"|_ipython_magic_no_var_expand|_render_traceback_|_added_operators|_thin_wheels|_uses|_graft_\w+"
)
SESSION = [*(PACKAGES / "graft/session").glob("*.py"), PACKAGES / "graft/deliver/shipped/publish.py"]


@pytest.fixture(scope="module")
def version(base: Path) -> str:
    """The version of the base."""
    return Base(base / "torch", base).version


def test_nothing_is_lacking(base: Path, version: str) -> None:
    assert [*lacking(base / "torch", version)] == []


@pytest.mark.parametrize(("private", "name"), EACH, ids=[f"{each.file}-{name}" for each, name in EACH])
def test_name_that_is_gone_is_found(base: Path, tmp_path: Path, version: str, private: Private, name: str) -> None:
    """The last part has another name in a copy of its file."""
    if private.kind == BINDING:
        assert [*lacking(base / "torch", version, [replace(private, text=f"{name}_gone")])]
        return
    last = "|".join({each.rpartition(".")[2] for each in name.split("|")})
    last = "cache_clear" if name == "FakeTensorMode" else last
    text = (base / "torch" / private.file).read_text(encoding="utf-8")
    copy = tmp_path / private.file
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(re.sub(rf"\b({last})\b", r"\1_gone", text), encoding="utf-8")
    found = [*lacking(tmp_path, version, [replace(private, text=name)])]
    assert found == [(replace(private, text=name), name)]


def test_cache_that_is_none_any_more_is_found(base: Path, tmp_path: Path, version: str) -> None:
    text = (base / "torch/overrides.py").read_text(encoding="utf-8")
    (tmp_path / "overrides.py").write_text(re.sub(r"@functools\.(lru_)?cache.*", "", text), encoding="utf-8")
    private = [each for each in PRIVATE if each.file == "overrides.py"]
    assert [name for _, name in lacking(tmp_path, version, private)] == [n for each in private for n in each.names]


def test_release_without_names_is_refused(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    private = Private("_C", BINDING, "what it is for", "_is_gone")
    monkeypatch.setattr("graft.base.private_names.lacking.__defaults__", ((private,),))
    found = Base(base / "torch", base)
    with pytest.raises(UsageError, match=r"_C has no _is_gone \(what it is for\)"):
        require_private_names(found, tmp_path / "note")
    assert not (tmp_path / "note").exists()
    monkeypatch.setattr("graft.base.private_names.lacking.__defaults__", ((replace(private, is_for_speed=True),),))
    require_private_names(found, tmp_path / "note")
    assert "may be slower" in capsys.readouterr().err
    require_private_names(found, tmp_path / "note")  # once for each torch
    assert capsys.readouterr().err == ""


def own_names(nodes: list[ast.AST]) -> set[str]:
    """Return the names of functions, classes and attributes that modules define."""
    selfs = ("self", "cls")
    attributes = {each.attr for each in nodes if isinstance(each, ast.Attribute) and ast.unparse(each.value) in selfs}
    return attributes | {each.name for each in nodes if isinstance(each, (ast.FunctionDef, ast.ClassDef))}


def test_all_private_names_are_listed() -> None:
    listed = {part for _, name in EACH for part in re.split(r"[.|]", name)}
    nodes = [each for path in SESSION for each in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    own = own_names(nodes)
    used = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    used |= {each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    theirs = {name for name in used if re.fullmatch(r"_(?!_)\w*", name)} - own
    assert len(theirs) > 30
    assert {name for name in theirs - listed if not _OTHERS.fullmatch(name)} == set()
