"""memcached_client.py HOST PORT THREADS ROUNDS: threads that set values and read them again, each with connections of its own."""
import sys
import threading

from pymemcache.client.base import Client

HOST, PORT, THREADS, ROUNDS = sys.argv[1], *map(int, sys.argv[2:])
faults, rounds = [], []


def value(thread, number):
    size = (1, 20, 1000, 70_000, 300_000, 2_000_000)[number // 10 % 6] if number % 10 == 0 else 10 + number
    part = f"{thread}-{number}-".encode()
    return (part * (size // len(part) + 1))[:size]


def check(what, found, expected):
    if found != expected:
        faults.append(f"{what}: {found!r:.80} in place of {expected!r:.80}")


def run(thread):
    try:
        client = Client((HOST, PORT), timeout=20, no_delay=True)
        counter = f"counter-{thread}"
        client.set(counter, "0")
        for number in range(ROUNDS):
            key, expected = f"key-{thread}-{number}", value(thread, number)
            client.set(key, expected, noreply=False)
            check(key, client.get(key), expected)
            check(counter, client.incr(counter, 1), number + 1)
            if number % 7 == 0:
                before = [f"key-{thread}-{n}" for n in range(max(0, number - 5), number + 1)]
                found = client.get_many(before)
                for n, name in enumerate(before, max(0, number - 5)):
                    if n == number or (n % 7 and n % 20 != 19):  # neither changed nor deleted below
                        check(name, found.get(name), value(thread, n))
                changed, token = client.gets(key)
                check("cas", client.cas(key, changed[:100] + b"!", token, noreply=False), True)
                check("cas again", client.cas(key, b"no", token, noreply=False), False)
                check(key, client.get(key), expected[:100] + b"!")
            if number % 20 == 19:
                check("delete", client.delete(key, noreply=False), True)
                check("deleted", client.get(key), None)
                client.close()
                client = Client((HOST, PORT), timeout=20)
            rounds.append(1)
        client.quit()
    except Exception as e:  # shown below
        faults.append(f"thread {thread}: {e!r}")


threads = [threading.Thread(target=run, args=(n,)) for n in range(THREADS)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if faults:
    sys.exit("\n".join(faults[:20]))
print(f"{THREADS} threads, {len(rounds)} rounds: all values as they were set")
