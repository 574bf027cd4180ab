"""Which replica answered what, and whether requests that belong together came to one."""

from dataclasses import dataclass

from service.cli.load_places import Places, ReplicaLoad, places_of


@dataclass(frozen=True)
class Answer:
    replica: str | None
    affinity: str | None = None
    started: float = 0.0
    generated_tokens: int = 3


def test_each_replica_has_its_requests_and_tokens() -> None:
    places = places_of([Answer("b"), Answer("a", generated_tokens=5), Answer("b")])

    assert places is not None
    assert [("a", ReplicaLoad(1, 5)), ("b", ReplicaLoad(2, 6))] == list(places.replicas.items())


def test_the_first_request_of_a_header_cannot_come_back() -> None:
    assert Places({"a": ReplicaLoad(2, 6)}, 0, 0) == places_of([Answer("a", "s"), Answer("a", "t")])


def test_a_request_comes_back_to_the_replica_of_the_last_with_its_header() -> None:
    places = places_of([Answer("a", "s", 0), Answer("b", "s", 1), Answer("b", "s", 2), Answer("b", "t", 3)])

    assert places is not None
    assert (2, 1, 0.5) == (places.could_return, places.returned, places.share)


def test_requests_are_taken_in_the_order_in_which_they_began() -> None:
    places = places_of([Answer("b", "s", 2), Answer("a", "s", 0), Answer("a", "s", 1), Answer("b", "s", 3)])

    assert places is not None
    assert (3, 2) == (places.could_return, places.returned)


def test_requests_without_a_header_belong_with_nothing() -> None:
    places = places_of([Answer("a"), Answer("a")])

    assert places is not None
    assert None is places.share


def test_a_server_that_names_nobody_has_no_places() -> None:
    assert None is places_of([Answer(None, "s"), Answer(None, "s")])
