"""The page as it is served: which files there are, and what keeps a browser from running or calling anything else."""

import re

import pytest

from service.page import FILES, FOLDER, MEDIA_TYPES
from tests.service.door import Answer, Client

POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
ELSEWHERE = re.compile(r"""(?:https?:)?//[a-z0-9-]+\.[a-z]|\bdata:\w+/""")
"""An address on another server, or content that no file holds."""


@pytest.fixture(scope="module")
def client() -> Client:
    return Client()


def fetched(client: Client, path: str, **headers: str) -> Answer:
    return client.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})


@pytest.mark.parametrize("path", FILES)
def test_every_file_is_sent_with_the_policy_and_its_type(client: Client, path: str) -> None:
    answer = fetched(client, path)

    assert (200, FILES[path].content) == (answer.status, answer.body)
    assert POLICY == answer.headers["content-security-policy"]
    assert "nosniff" == answer.headers["x-content-type-options"]
    assert FILES[path].media_type == answer.headers["content-type"]


def test_the_page_stands_at_the_root(client: Client) -> None:
    answer = fetched(client, "/")

    assert "text/html; charset=utf-8" == answer.headers["content-type"]
    assert answer.body.startswith(b"<!doctype html>")


def test_a_browser_that_has_a_file_is_not_sent_it_again(client: Client) -> None:
    first = fetched(client, "/")

    again = fetched(client, "/", if_none_match=f'"other", W/{first.headers["etag"]}')

    assert (304, b"", first.headers["etag"]) == (again.status, again.body, again.headers["etag"])
    assert "no-cache" == again.headers["cache-control"]


def test_a_file_that_has_changed_is_sent(client: Client) -> None:
    assert 200 == fetched(client, "/", if_none_match='"older"').status


@pytest.mark.parametrize(
    "path", ["/ui/index.html", "/ui/js/none.js", "/ui/../guard.py", "/ui/js/../../guard.py", "/ui/"]
)
def test_nothing_else_is_served(client: Client, path: str) -> None:
    assert 404 == fetched(client, path).status


def test_every_file_of_the_folder_is_served() -> None:
    """What is not would be missing in a browser, or is not the page's."""
    files = [path for path in FOLDER.rglob("*") if path.is_file()]

    assert len(files) == len(FILES)
    assert {path.suffix for path in files} <= MEDIA_TYPES.keys()


@pytest.mark.parametrize("path", FILES)
def test_no_file_names_another_server(path: str) -> None:
    text = FILES[path].content.decode("utf-8").replace("http://www.w3.org/2000/svg", "")

    assert [] == ELSEWHERE.findall(text)


def test_the_page_has_no_script_or_style_in_its_markup() -> None:
    """The policy would refuse them, and a browser would say so to nobody who looks."""
    markup = FILES["/"].content.decode("utf-8")

    assert [] == re.findall(r"<style|\bstyle=|\son\w+=|<script(?![^>]*\bsrc=)", markup)


def test_no_script_makes_markup_of_text() -> None:
    """Texts of models and callers go in as text: nothing here can be made to read them as anything else."""
    scripts = {path: file.content.decode("utf-8") for path, file in FILES.items() if path.endswith(".js")}
    makes_markup = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|eval\("
    )

    assert [] == [path for path, text in scripts.items() if makes_markup.search(text)]


def test_every_address_in_the_files_is_a_file() -> None:
    named = {
        address
        for path, file in FILES.items()
        if path == "/" or path.endswith(".css")
        for address in re.findall(r"/ui/[\w./-]+", file.content.decode("utf-8"))
    }

    assert set() == named - FILES.keys()


def test_every_module_that_is_imported_is_a_file() -> None:
    imported = {
        f"/ui/js/{name}"
        for path, file in FILES.items()
        if path.endswith(".js")
        for name in re.findall(r"""(?:from |import\()"\./([\w.-]+)\"""", file.content.decode("utf-8"))
    }

    assert set() == imported - FILES.keys()
