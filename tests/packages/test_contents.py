"""What is in the deb and in the rpm, and whether both say the truth about it."""

from __future__ import annotations

import gzip
import hashlib
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from tests.integration.conftest import require
from tests.packages.conftest import Built

from packages.__main__ import main
from packages.bundle import unpack
from packages.release import PACKAGING, Release, release
from packages.rpm import file_list
from sonde.cli.main import COMMANDS
from sonde.version import VERSION

SIZE_BAR_KIB = 60_000_000 // 1024
SITE = "usr/lib/sonde/lib/python3/site-packages"


@pytest.fixture(scope="session")
def tree(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The deb unpacked, with its control files in DEBIAN."""
    folder = tmp_path_factory.mktemp("unpacked") / "deb"
    subprocess.run(["dpkg-deb", "--raw-extract", str(built.deb), str(folder)], check=True)
    return folder


def field(deb: Path, name: str) -> str:
    return subprocess.run(["dpkg-deb", "-f", str(deb), name], capture_output=True, text=True, check=True).stdout.strip()


def rpm(path: Path, *words: str) -> list[str]:
    ended = subprocess.run([require("rpm"), *words, str(path)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def listed(deb: Path) -> dict[str, str]:
    """Path: mode and owner, as dpkg-deb --contents prints them."""
    lines = subprocess.run(["dpkg-deb", "-c", str(deb)], capture_output=True, text=True, check=True).stdout.splitlines()
    return {words[5].removeprefix(".").rstrip("/"): f"{words[0]} {words[1]}" for words in map(str.split, lines)}


def test_the_checksums_are_those_of_the_files(built: Built) -> None:
    ended = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=built.folder, capture_output=True, text=True
    )

    assert ended.returncode == 0
    assert ended.stdout.count(": OK\n") == 4
    assert sorted(path.name for path in built.folder.iterdir()) == sorted(path.name for path in built[1:])


def test_the_deb_says_what_it_is(built: Built) -> None:
    assert field(built.deb, "Package") == "sonde"
    assert field(built.deb, "Version") == VERSION
    assert "python3 (>= 3.11)" in field(built.deb, "Depends")
    assert built.deb.name == f"sonde_{VERSION}_{field(built.deb, 'Architecture')}.deb"


def test_the_deb_stays_small(built: Built) -> None:
    assert int(field(built.deb, "Installed-Size")) <= SIZE_BAR_KIB


def test_everything_belongs_to_root_and_only_programs_can_be_run(built: Built) -> None:
    files = listed(built.deb)

    assert {owner.split()[1] for owner in files.values()} == {"root/root"}
    assert sorted(path for path, mode in files.items() if mode.startswith("-") and "x" in mode) == [
        "/usr/bin/sonde", "/usr/share/python3/runtime.d/sonde.rtupdate"
    ]  # fmt: skip
    assert not [path for path, mode in files.items() if not mode.startswith("l") and "w" in mode[5:10]]
    assert not [path for path in files if path.endswith(".pyc")]


def test_what_an_administrator_may_change_is_a_conffile(tree: Path, built: Built) -> None:
    marked = (tree / "DEBIAN/conffiles").read_text().split()

    assert marked == ["/etc/sonde/sonde.toml", "/etc/logrotate.d/sonde"]
    assert sorted(marked) == sorted(
        f"/{path.relative_to(tree)}" for path in (tree / "etc").rglob("*") if path.is_file()
    )
    assert sorted(rpm(built.rpm, "-qpc")) == sorted(marked)


def test_the_sums_in_the_deb_are_those_of_its_files(tree: Path) -> None:
    lines = (tree / "DEBIAN/md5sums").read_text().splitlines()

    assert len(lines) > 100
    for line in lines:
        digest, _, name = line.partition("  ")
        assert hashlib.md5((tree / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("script", ["postinst", "prerm", "postrm", "rtupdate"])
def test_the_scripts_are_good_shell(script: str) -> None:
    path = PACKAGING / "debian" / script

    subprocess.run(["sh", "-n", str(path)], check=True)
    assert "\nset -e\n" in path.read_text()


def test_every_command_has_its_page(tree: Path) -> None:
    pages = {path.name for path in (tree / "usr/share/man").rglob("*.gz")}

    assert pages == {"sonde.1.gz", "sonde.toml.5.gz", *(f"sonde-{name}.1.gz" for name in COMMANDS)}
    assert b"sonde\\-status" in gzip.decompress((tree / "usr/share/man/man1/sonde-status.1.gz").read_bytes())


@pytest.mark.parametrize(
    "path",
    [
        "usr/share/bash-completion/completions/sonde",
        "usr/share/zsh/vendor-completions/_sonde",
        "usr/share/fish/vendor_completions.d/sonde.fish",
    ],
)
def test_each_shell_finds_its_completion(tree: Path, path: str) -> None:
    assert all(name in (tree / path).read_text() for name in COMMANDS)


def test_the_unit_and_the_rules_are_those_of_the_project(tree: Path) -> None:
    unit, rules = tree / "usr/lib/systemd/system/sonde.service", tree / "etc/logrotate.d/sonde"

    assert unit.read_text() == (PACKAGING / "sonde.service").read_text()
    assert rules.read_text() == (PACKAGING / "sonde.logrotate").read_text()


def test_the_licences_of_all_are_there(tree: Path, built: Built) -> None:
    text = (tree / "usr/share/doc/sonde/copyright").read_text()
    bundled = [path.name.split("-")[0] for path in (tree / SITE).glob("*.dist-info") if "sonde" not in path.name]

    assert bundled
    assert all(f"Files: {SITE}/{name}*" in text for name in bundled)
    assert "/usr/share/licenses/sonde/LICENSE" in rpm(built.rpm, "-qpL")


def test_links_in_the_documents_lead_somewhere(tree: Path) -> None:
    documents = tree / "usr/share/doc/sonde"
    text = (documents / "README.md").read_text()
    inside = [link for link in re.findall(r"\]\((docs/[^)#]+)\)", text) if link.endswith(".md")]

    assert inside
    assert all((documents / link).exists() for link in inside)


def test_the_environment_runs_where_it_was_unpacked(tree: Path) -> None:
    python = Path("/usr/bin/python3")
    version = subprocess.run([str(python), "-V"], capture_output=True, text=True).stdout if python.exists() else ""
    if not re.match(r"Python 3\.(1[1-9])", version):
        pytest.skip("this system's own Python is older than 3.11")
    (tree / "usr/bin/python3").symlink_to(python)
    ended = subprocess.run(
        [str(tree / "usr/lib/sonde/bin/python"), "-I", "-B", str(tree / "usr/bin/sonde"), "version"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    (tree / "usr/bin/python3").unlink()

    assert ended.stdout.startswith(f"sonde {VERSION}, {version.strip()}")


def test_the_bundled_modules_are_there_for_every_python(tree: Path, built: Built) -> None:
    modules = sorted(path.name for path in (tree / SITE).rglob("*.so"))

    assert len(modules) % 4 == 0
    for minor in (11, 12, 13, 14):
        assert any(f".cpython-3{minor}-" in name for name in modules)
        assert (tree / f"usr/lib/sonde/lib/python3.{minor}").readlink() == Path("python3")


def test_rpm_finds_its_digests_good(built: Built) -> None:
    assert rpm(built.rpm, "--checksig") == [f"{built.rpm}: digests OK"]


def test_the_rpm_asks_for_a_python_that_is_new_enough(built: Built) -> None:
    required = rpm(built.rpm, "-qp", "--requires")

    assert "(python3 >= 3.11 or python3.13 or python3.12 or python3.11)" in required
    assert not [line for line in required if line.startswith("python(abi)")]


def test_the_rpm_has_the_files_of_the_deb(built: Built) -> None:
    of_rpm, of_deb = set(rpm(built.rpm, "-qpl")), set(listed(built.deb))

    different = {"zsh", "python3/runtime.d", "lintian", "licenses"}
    missing = {path for path in of_deb - of_rpm if not any(word in path for word in different)}
    assert {path for path in of_rpm - of_deb if not any(word in path for word in different)} == set()
    # What is not the package's alone is not listed: directories of the system, papers that only Debian asks for.
    assert {path for path in missing if f"{path}/" not in "\n".join(of_rpm) and path} == {
        "/usr/share/doc/sonde/changelog.gz", "/usr/share/doc/sonde/copyright", "/usr/share/python3",
    }  # fmt: skip


def test_the_rpm_leaves_the_link_to_the_python_to_its_script(built: Built) -> None:
    (flags,) = [
        line for line in rpm(built.rpm, "-qp", "--qf", "[%{FILEFLAGS:fflags} %{FILENAMES}\n]") if "bin/python" in line
    ]

    assert flags == "g /usr/lib/sonde/bin/python"


def test_a_file_with_blanks_in_its_name_stays_one(tmp_path: Path) -> None:
    (tmp_path / "usr/share/doc/sonde").mkdir(parents=True)
    (tmp_path / "usr/share/doc/sonde/read me").write_text("")

    assert '%doc "/usr/share/doc/sonde/read me"' in list(file_list(tmp_path))


@pytest.mark.parametrize(
    ("python", "package"), [("0.1.0", "0.1.0"), ("0.2.0rc1", "0.2.0~rc1"), ("0.2.0.dev3", "0.2.0~dev3")]
)
def test_a_candidate_sorts_before_its_release(python: str, package: str) -> None:
    assert Release(python, 0, "x86_64", "").package_version == package


def test_a_missing_tool_is_named_before_anything_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert main(["--dist", str(tmp_path / "dist")]) == 3
    assert "rpmbuild (package rpm" in capsys.readouterr().err
    assert not (tmp_path / "dist").exists()


def test_wheels_that_do_not_agree_are_refused(tmp_path: Path) -> None:
    for name, content in (("a.whl", "1"), ("b.whl", "2")):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("shared.py", content)
            archive.writestr("x-1.dist-info/RECORD", content)

    with pytest.raises(SystemExit, match="do not agree about shared"):
        unpack([tmp_path / "a.whl", tmp_path / "b.whl"], tmp_path / "site")


def test_the_time_of_everything_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")

    assert release().epoch == 1700000000
