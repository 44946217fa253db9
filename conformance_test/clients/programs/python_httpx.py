"""httpx: python_httpx.py TARGET CA COUNT PAUSE SCENARIO..."""

import asyncio
import json
import sys
import time
from collections import Counter

import httpx

target, ca, count, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])


def connect():
    path = target[5:] if target.startswith("unix:") else None
    transport = httpx.AsyncHTTPTransport(verify=ca or True, http1=False, http2=True, uds=path)
    base = "http://localhost" if path else f"http{'s' if ca else ''}://{target}"
    return httpx.AsyncClient(transport=transport, base_url=base, timeout=60)


def tally(results):
    return ", ".join(f"{n} {r}" for r, n in sorted(Counter(results).items()))


async def hello(c, **options):
    return (await c.get("/hello", **options)).text


async def unary(c):
    results = []
    for left in range(count // 4, 0, -20):
        results += await asyncio.gather(*(hello(c) for _ in range(min(left, 20))))
    return tally(results)


async def up(c):
    async def parts():
        for _ in range(count):
            yield b"hello"

    return (await c.post("/count", content=parts())).text + " bytes"


async def read(c, path, each=None):
    n = 0
    async with c.stream("GET", path) as r:
        async for part in r.aiter_raw():
            n += len(part)
            if each:
                await each(n)
    return n


async def down(c):
    return f"{await read(c, f'/source?{count}+5')} bytes"


async def slow(c):
    pauses = 0

    async def each(n):
        nonlocal pauses
        if n > pauses * (3 << 20):
            pauses += 1
            await asyncio.sleep(pause)

    return f"{await read(c, '/source?512+16384', each)} bytes"


async def late(c):
    try:
        await c.get("/wait", timeout=httpx.Timeout(60, read=0.1))
        return "answered"
    except httpx.ReadTimeout:
        return "late"


async def deadline(c):
    return tally(await asyncio.gather(*(late(c) for _ in range(100))) + [await hello(c)])


async def cancel(c):
    results = []
    for _ in range(max(count // 1000, 5)):
        tasks = [asyncio.ensure_future(c.get("/wait")) for _ in range(50)]
        await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        results += ["cancelled" if isinstance(e, asyncio.CancelledError) else repr(e) for e in await asyncio.gather(*tasks, return_exceptions=True)]
    async with connect() as fresh:
        return tally(results + [await hello(fresh)])


async def big(c):
    return f"{(await c.post('/count', content=bytes(8 << 20))).text} up, {await read(c, '/source?1+8388608')} down"


async def refuse(c):
    return str((await c.post("/refuse", content=b"")).status_code)


async def main():
    for scenario in sys.argv[5:]:
        start = time.time()
        try:
            async with connect() as c:
                result = await globals()[scenario](c)
        except Exception as e:
            result = repr(e)
        print(json.dumps({"scenario": scenario, "result": result, "seconds": time.time() - start}), flush=True)


asyncio.run(main())
