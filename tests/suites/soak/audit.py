"""What must be true after any number of deaths: nothing acknowledged is lost, nothing ran twice, the books agree."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from typing import Any

from tests.suites.soak.homes import Home, Town
from tests.suites.soak.letters import Correspondence, Letter

ENDS = {"executed", "failed", "interrupted"}
AT_ONCE = 8


async def acknowledged_is_found(town: Town, letters: list[Letter]) -> None:
    """Whoever asks the running node for a message it answered is told of that very answer (OIP 1.2 §10)."""
    seats = asyncio.Semaphore(AT_ONCE)

    async def look(letter: Letter) -> None:
        async with seats:
            answer = await town.probe.get("/oip/ledger", {"msg": letter.id})
        records: Any = answer.members()["records"]
        told = [record["response_id"] for record in records]
        assert letter.acknowledged in told, (letter.kind, letter.acknowledged, records)

    await asyncio.gather(*(look(letter) for letter in letters if letter.acknowledged))


def answers_agree(letters: list[Letter]) -> None:
    """One answer a message, however often it was given; a refused repeat names it, if it was a repeat at all."""
    for letter in letters:
        results = [reply for reply in letter.replies if reply["kind"] == "result"]
        assert len({reply["id"] for reply in results}) <= 1, results
        assert len({reply["body_sha256"] for reply in results}) <= 1, results
        assert len(letter.replies) + letter.lost > 0
        for reply in letter.repeats:
            assert reply["body"]["reason"] == "replay_rejected", reply["body"]
            assert results or letter.lost, f"refused as a repeat at the first attempt: {letter.id}"
            original = reply["body"]["original"]
            if results:
                assert original["response_id"] == results[0]["id"]


def nothing_ran_twice(alpha: Home, letters: list[Letter]) -> None:
    """By the object's own books and by the ledger: once for what was acknowledged, at most once for anything."""
    counted = Counter(row["name"] for row in alpha.rows("select name from counting_run"))
    rung = Counter(alpha.rung.read_text().splitlines() if alpha.rung.exists() else ())
    executed = Counter(said["msg"] for kind, said in entries(alpha) if kind == "executed" and said.get("msg"))
    assert counted.most_common(1) == [] or counted.most_common(1)[0][1] == 1, counted.most_common(3)
    assert rung.most_common(1) == [] or rung.most_common(1)[0][1] == 1, rung.most_common(3)
    assert executed.most_common(1)[0][1] == 1, executed.most_common(3)
    for letter in letters:
        done = {"COUNT": counted, "RING": rung}.get(letter.kind)
        if done is not None and letter.answer is not None and letter.answer["body"]["ok"]:
            assert (done[letter.name], executed[letter.id]) == (1, 1), (letter.kind, letter.id)
        if letter.kind == "COUNT":
            assert counted[letter.name] == executed[letter.id]


def entries(home: Home) -> list[tuple[str, dict[str, Any]]]:
    """Kind and payload of every entry, in order."""
    sql = "select e.header, p.payload from ledger_entry e join ledger_payload p on p.seq = e.seq order by e.seq"
    return [(json.loads(row["header"])["kind"], json.loads(row["payload"])) for row in home.rows(sql)]


def acts_are_closed(alpha: Home) -> None:
    """Every act that began outside has one end, and none is still open."""
    ends: dict[str, list[str]] = defaultdict(list)
    started = []
    for kind, said in entries(alpha):
        if kind == "started":
            started.append(said["invocation"])
        elif kind in ENDS and said.get("invocation"):
            ends[said["invocation"]].append(kind)
    assert alpha.rows("select * from govern_act") == []
    assert [act for act in started if len(ends[act]) != 1] == []


def claims_agree(alpha: Home, letters: list[Letter]) -> None:
    """One spent id a message, with the answer that was given; an interrupted act leaves its id spent and unanswered."""
    claims: dict[str, list[Any]] = defaultdict(list)
    for row in alpha.rows("select key, state, meta, reply from govern_claim"):
        claims[row["key"].split("/")[1]].append(row)
    assert [key for key, found in claims.items() if len(found) != 1] == []
    for letter in letters:
        if not letter.replies:
            continue
        (claim,) = claims[letter.id]
        kept = (json.loads(claim["meta"]).get("response") or {}).get("id")
        assert letter.acknowledged == kept, (letter.id, letter.acknowledged, kept)
        assert (claim["state"] == "done") is (kept is not None)


def uses_agree(alpha: Home) -> None:
    """What the capabilities were charged is what was run under them."""
    used = {row[0]: row[1] for row in alpha.rows("select fingerprint, uses_consumed from capabilities_capability")}
    ran: Counter[str] = Counter()
    for kind, said in entries(alpha):
        for charge in said.get("charges", ()):
            if kind == "started" or (kind in ENDS and said["object"] != "RING"):
                ran[charge["capability"]] += 1
    assert {name: count for name, count in used.items() if count} == dict(ran)


def letters_arrived(alpha: Home, beta: Home, kept: Correspondence) -> None:
    """Everything beta said it would send is in its outbox and has arrived, each once, with a proven answer."""
    rows = {row["msg_id"]: row for row in beta.rows("select * from envelope_message")}
    assert set(kept.told) <= set(rows)
    assert Counter(row["state"] for row in rows.values()) == {"delivered": len(rows)}
    claimed = Counter(row["key"].split("/")[1] for row in alpha.rows("select key from govern_claim"))
    executed = Counter(said["msg"] for kind, said in entries(alpha) if kind == "executed" and said.get("msg"))
    for name, row in rows.items():
        assert (claimed[name], bool(row["response_verified"])) == (1, True), dict(row)
        assert executed[name] == (1 if row["kind"] == "invoke" else 0)
