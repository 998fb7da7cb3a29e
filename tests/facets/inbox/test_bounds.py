"""What somebody who proves nothing may cost the inbox, under however many names."""

from __future__ import annotations

from typing import Any

import pytest

from deedbox.identity.keys import P256Pair
from tests.facets.inbox.conftest import Start

ROOM: dict[str, Any] = {"inbox": {"unverified": "2/min"}, "shield": {"address": "99999/min"}}


@pytest.mark.case("oip:W60")
async def test_all_names_that_are_made_up_have_one_allowance(start: Start) -> None:
    home = await start(limits=ROOM)
    pair = P256Pair.generate()
    made_up = [home.letter(sender=f"a@n{number}.example", pair=pair) for number in range(49)]
    heard = [(await home.running.post("/oip/inbox", letter)).status for letter in made_up]
    assert heard == [200] * 48 + [429]
    assert len(await home.rows("select key from govern_quota where key like 'unverified/n%'")) == 48
    assert (await home.say()).kind == "result"
    assert len(await home.rows("select id from inbox_exchange")) == 49


async def test_what_is_no_envelope_is_counted_and_at_last_not_read(start: Start) -> None:
    home = await start(limits={"shield": {"address": "4/min"}})
    heard = [await home.running.post("/oip/inbox", b"[]") for _ in range(5)]
    assert [each.status for each in heard] == [400, 400, 400, 400, 429]
    assert heard[-1].headers["retry-after"] == "15"
    home.clock.advance(15)
    assert (await home.say()).kind == "result"
    assert (await home.running.post("/oip/inbox", b"[]")).status == 429
