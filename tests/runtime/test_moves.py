#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Moves a program's memory out and back at the test's command, and looks at how many bytes that took. test_moves.py --build DIR"""
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import MIB, BuildTest, Card, Told, check, main, sanitized, wait_for  # noqa: E402  (beside this file)


def round_trip(told, other, out, back, text):
    """Everything goes to the host and comes back: the bytes that went, and came, in MiB."""
    before = told.entry()
    gone = told.make_room(other)
    check(gone["moved_out"] - before["moved_out"] == out * MIB,
          f"{text}: {(gone['moved_out'] - before['moved_out']) / MIB:g} of {out} MiB out")
    check(told.say("touch") == "ok", f"{text}: touch")
    here = told.arrived(gone["demand"])
    check(here["moved_in"] - gone["moved_in"] == back * MIB,
          f"{text}: {(here['moved_in'] - gone['moved_in']) / MIB:g} of {back} MiB back")


def managed(build, more):
    """By prefetch: everything goes and comes, and never has the card too many pages."""
    with Card(build, memory="128MiB", **Told.SMALL_CONTEXTS, **more) as card:
        stats = os.path.join(card.folder, "stats")
        told, other = Told(card, SIMCUDA_STATS=stats), Told(card)
        check(told.say("alloc 80") == "ok" and told.say("zero 10") == "ok", f"{more}: 80 MiB of random bytes, 10 MiB of zeros")
        for _ in range(2):
            round_trip(told, other, 90, 90, "managed memory")
            check(told.say("check") == "ok", "every byte")
        told.end()
        other.end()
        with open(stats, encoding="utf-8") as file:
            pages = json.load(file)
        check(pages["managed_faults"] == 0, f"{pages['managed_faults']} pages came by a fault")
        check(pages["managed_remote"] == 0, f"{pages['managed_remote']} pages had no room")
        check(pages["memory_peak_bytes"] == 0, "no other device memory")


class Moves(BuildTest):
    def test_hashed(self):
        """Only what has changed crosses the bus, and zeros never do."""
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
            told, other = Told(card), Told(card)
            check(told.say("alloc 80") == "ok", "80 MiB of random bytes")  # more than one chunk
            round_trip(told, other, 80, 80, "the first time")
            round_trip(told, other, 0, 80, "nothing has changed")
            check(told.say("change 0 7") == "ok", "one byte of the block at 6 MiB")
            round_trip(told, other, 2, 80, "one block has changed")
            check(told.say("change 0 79") == "ok" and told.say("change 0 2") == "ok", "first and last bytes of blocks")
            round_trip(told, other, 4, 80, "two blocks in two chunks have changed")
            check(told.say("clear 0 8 6") == "ok", "6 MiB of it become zeros")
            round_trip(told, other, 0, 74, "zeros")
            check(told.say("zero 20") == "ok", "20 MiB of zeros beside it")
            round_trip(told, other, 0, 74, "a chunk of nothing but zeros")
            check(told.say("change 1 5") == "ok" and told.say("change 0 9") == "ok", "a byte among the zeros of each")
            round_trip(told, other, 4, 78, "no longer zero")
            check(told.say("check") == "ok", "every byte")
            told.end()
            other.end()

    def test_copied(self):
        """Without the kernel everything crosses, and is right as well."""
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS, SIMCUDA_BUILTIN="0") as card:
            told, other = Told(card), Told(card)
            check(told.say("alloc 80") == "ok" and told.say("zero 10") == "ok", "80 MiB of random bytes, 10 MiB of zeros")
            for _ in range(2):
                round_trip(told, other, 90, 90, "no kernel")
            check(told.say("check") == "ok", "every byte")
            told.end()
            other.end()

    def test_kernel_fails(self):
        """A launch that fails costs that chunk the comparison, nothing else."""
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS, SIMCUDA_FAIL="cuLaunchKernel:2:701") as card:
            told, other = Told(card), Told(card)
            check(told.say("alloc 80") == "ok", "80 MiB")
            round_trip(told, other, 80, 80, "the second launch fails")
            round_trip(told, other, 16, 80, "what has no hashes goes again")  # the second chunk
            round_trip(told, other, 0, 80, "and has them now")
            check(told.say("check") == "ok", "every byte")
            told.end()
            other.end()

    def test_in_one_piece(self):
        """What may be exported is one chunk, of any size: more blocks than one launch hashes, more than a segment holds."""
        with Card(self.build, memory="288MiB", **Told.SMALL_CONTEXTS) as card:
            told, other = Told(card), Told(card)
            for bytes_ in (132, 260):
                check(told.say(f"export {bytes_}") == "ok", f"{bytes_} MiB in one piece")
                round_trip(told, other, bytes_, bytes_, f"{bytes_} MiB in one piece")
                check(told.say("check") == "ok" and told.say("free 0") == "ok", "every byte")
            told.end()
            other.end()

    def test_rights(self):
        """What the program has made readable only, or not even that, leaves and comes back with its contents and these rights."""
        none, read, all_ = 0, 1, 3
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
            told, other = Told(card), Told(card)
            check(told.say("alloc 1") == "ok", "a block that can be touched")
            check(told.say("export 20") == "ok" and told.say("export 70") == "ok", "90 MiB of its own")
            for first, second in ((read, all_), (all_, none), (none, read)):
                text = f"rights {first} and {second}"
                check(told.say(f"rights 1 {first}") == "ok" and told.say(f"rights 2 {second}") == "ok", text)
                for _ in range(2):
                    told.make_room(other)
                    check(told.say("touch", 60) == "ok", f"{text}: everything comes back")
                    told.until(lambda entry: entry["resident"] == entry["demand"])
                    check(told.say(f"has 1 {first}") == "ok" and told.say(f"has 2 {second}") == "ok", f"{text}: they are as before")
                check(told.say(f"rights 1 {all_}") == "ok" and told.say(f"rights 2 {all_}") == "ok" and told.say("check") == "ok",
                      f"{text}: every byte")
            told.end()
            other.end()

    def test_without_address(self):
        """What the program has unmapped and holds on to cannot leave: it counts as pinned, and nobody waits for it in vain."""
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
            told, other = Told(card), Told(card)
            check(told.say("export 40") == "ok" and told.say("alloc 20") == "ok" and told.say("unmap 0") == "ok", "40 MiB without an address")
            all_of_it = other.ask_for_all()
            entry = told.until(lambda entry: entry["pinned"] == 42 * MIB and entry["resident"] == 0)  # and the edges of all ranges
            check(entry["pinned"] == 42 * MIB and entry["resident"] == 0, f"{entry['pinned'] / MIB:g} of 42 MiB stay, {entry['resident'] / MIB:g} of 20 are yet to leave")
            third = Told(card)
            answer = third.say(f"zero {all_of_it}", 50)
            check(answer == "error 2", f"who asks for more than is left: {answer}")
            for child in (other.child, third.child):
                child.kill()
                child.wait()
            check(told.say("map 0") == "ok" and told.say("check") == "ok", "every byte")
            other = Told(card)
            check(other.say("zero 2") == "ok" and other.say("free 0") == "ok", "another one")
            told.make_room(other)
            check(told.say("check") == "ok", "with an address it leaves and comes back")
            told.end()
            other.end()

    def test_refused_launch(self):
        """A driver that refuses a launch for lack of memory while the card has some is asked again, but not for ever."""
        with Card(self.build) as card:
            told = Told(card, SIMCUDA_FAIL="cuGraphLaunch:2:2,cuGraphLaunch:3:2")
            for word in ("alloc 4", "graph 0 4", "check"):
                check(told.say(word) == "ok", f"refused twice: {word}")
            told.end()
            told = Told(card, SIMCUDA_FAIL="cuGraphLaunch:0:2")
            check(told.say("alloc 4") == "ok" and told.say("graph 0 1") == "error 2", "refused each time")
            told.end()

    def test_no_room_to_share(self):
        """What cannot be exported for want of memory is said, and the program gives way to others as before."""
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
            told = Told(card, SIMCUDA_FAIL=",".join(f"cuMemCreate:{number}:2" for number in range(4, 9)))
            check(told.say("alloc 70") == "ok", "70 MiB, in two pieces")
            answer = told.say("share 2")
            check(answer == "error 2", f"there is no memory for it: {answer}")
            other = Told(card)
            told.make_room(other, absent=2 * MIB)
            check(told.say("check") == "ok", "every byte")
            told.end()
            other.end()

    def test_address_stays(self):
        """The address of what has left the card is not the program's to free, though the driver sees nothing mapped there."""
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
            told, other = Told(card), Told(card)
            check(told.say("alloc 6") == "ok", "6 MiB")
            told.make_room(other)
            answer = told.say("unreserve 0")
            check(answer == "error 1", f"its address space is freed by the program: {answer}")
            check(told.say("check") == "ok", "every byte")
            told.end()
            other.end()

    def test_without_context(self):
        """Calls on memory need no context; what has left the card comes back for them all the same."""
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
            told, other = Told(card), Told(card)
            check(told.say("export 20") == "ok", "20 MiB")
            told.make_room(other)
            answer = told.say("bare 0")
            check(answer == "ok", f"exported by a thread without a context: {answer}")
            entry = told.until(lambda entry: entry["pinned"] >= 22 * MIB)
            check(entry["pinned"] >= 22 * MIB and told.say("check") == "ok", "it stays from now on, every byte")
            told.end()
            other.end()

    def test_lost_device(self):
        """Of a device that is lost the program hears at once, and what the driver says; it does not wait for memory there."""
        lost = ",".join(f"{call}:0:214" for call in ("cuMemCreate", "cuMemMap", "cuCtxSynchronize", "cuMemcpyHtoD_v2"))
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
            told = Told(card, SIMCUDA_FAIL=lost)
            answer = told.say("alloc 10", 50)  # less than GS_SHORT_LIMIT_NS
            check(answer == "error 214", f"an uncorrectable error: {answer}")
            told.end()

    def test_large_graph(self):
        """Room for a graph's memory, which cannot be moved, is made in a few seconds however much it is."""
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
            others = [Told(card), Told(card)]
            check([other.say("alloc 50") for other in others] == ["ok", "ok"], "100 of 128 MiB")
            code, out, err = card.run([os.path.join(self.build, "tests", "runtime", "pools"), "graph_large"])
            check(code == 0, f"a graph of 40 MiB beside them: exit {code} {out}{err}")
            for other in others:
                check(other.say("check") == "ok", "every byte")
                other.end()

    def test_large_graph_of_slow_others(self):
        """The room that others were asked for is waited for longer than a few seconds, as long as it is on its way."""
        with Card(self.build, memory="128MiB", SIMCUDA_PCIE_GBPS="0.016", **Told.SMALL_CONTEXTS) as card:
            others = [Told(card), Told(card)]
            check([other.say("alloc 50") for other in others] == ["ok", "ok"], "100 of 128 MiB")
            code, out, err = card.run([os.path.join(self.build, "tests", "runtime", "pools"), "graph_large"])
            check(code == 0, f"a graph of 40 MiB beside them: exit {code} {out}{err}")
            for other in others:
                other.end()

    def test_free_waits(self):
        """Freeing memory waits for the work that may use it, also while the program is to stop for others."""
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
            told, other = Told(card), Told(card)
            check([told.say(words) for words in ("alloc 10", "zero 80", "alloc 20", "zero 1", "spin")] == ["ok"] * 5, "111 MiB in use")
            other.tell("zero 40")
            entry = told.until(lambda known: known["state"] == "stuck")
            check(entry["state"] == "stuck", f"its gate is closed, and its work does not end: {entry['state']}")
            check(told.say("await 1") == "ok", "80 MiB are free, and the work has ended")
            check(other.answer() == "ok", "the other one has its turn")
            check(told.say("spin") == "ok" and told.say("await 0") == "ok", "the gate is open")
            check(told.say("check") == "ok", "every byte")
            told.end()
            other.end()

    def test_many_contexts(self):
        """Work in the last of many contexts is waited for before memory goes, as in any other."""
        with Card(self.build, memory="128MiB", SIMCUDA_CONTEXT_MEMORY="0") as card:
            told, other = Told(card), Told(card)
            check(told.say("alloc 80") == "ok" and told.say("contexts 70") == "ok", "80 MiB, 71 contexts")
            check(told.say("late 0 7") == "ok", "work in the last one")
            told.make_room(other)
            check(told.say("check") == "ok", "every byte, also that of the last context")
            told.end()
            other.end()

    def test_drain_fails(self):
        """Memory stays while the driver refuses to wait for the work that uses it (as during a capture that nobody knows of)."""
        refused = ",".join(f"cuCtxSynchronize:{i}:900" for i in range(1, 9))
        # without a kernel of the library, which would wait for the program's
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS, SIMCUDA_BUILTIN="0") as card:
            told, other = Told(card, SIMCUDA_FAIL=refused), Told(card)
            check(told.say("alloc 80") == "ok" and told.say("spin") == "ok", "80 MiB, and work that does not end")
            told.until(lambda known: known["resident"] == 80 * MIB)
            other.tell("zero 60")
            entry = told.until(lambda known: known["state"] == "stuck" or known["resident"] < 80 * MIB)
            check(entry["resident"] == 80 * MIB, f"{entry['resident'] / MIB:g} of 80 MiB stay")
            check(told.say("stop") == "ok" and other.answer() == "ok", "the other one has its turn when the work has ended")
            check(told.say("check") == "ok", "every byte")
            told.end()
            other.end()

    def test_allocates_when_a_capture_ends(self):
        """A capture forbids to allocate, and ends at once: no memory comes from the driver, which could not move."""
        with Card(self.build, memory="128MiB", SIMCUDA_FAIL="cuMemFree:1:900") as card:
            told = Told(card)
            said = [told.say(word) for word in ("alloc 4", "relax", "capture", "alloc 40", "alloc 40")]
            check(said == ["ok", "ok", "ok", "error 900", "ok"], f"44 MiB: {said}")
            check(told.until(lambda known: known["resident"] != 4 * MIB)["resident"] == 44 * MIB, "all of it is known")
            check(told.say("captured") == "ok", "the capture")
            told.end()

    def test_green(self):
        """The current context is a green one, which no other thread can enter: its work is waited for, its memory moves."""
        with Card(self.build, memory="128MiB", SIMCUDA_CONTEXT_MEMORY="0") as card:
            told, other = Told(card), Told(card)
            check(told.say("green") == "ok" and told.say("alloc 80") == "ok" and told.say("alloc 1") == "ok", "81 MiB in a green context")
            for _ in range(2):
                check(told.say("late 0 7") == "ok", "work in the green context")
                told.make_room(other)
                check(told.say("check") == "ok", "every byte, also that of the green context")
            told.end()
            other.end()

    def test_peers(self):
        """Access of another device is there again wherever memory comes back, also what is allocated later."""
        with Card(self.build, memory="128MiB", SIMCUDA_DEVICES="2", **Told.SMALL_CONTEXTS) as card:
            told, other = Told(card), Told(card)
            check(told.say("alloc 80") == "ok", "80 MiB")
            check(told.say("reached 0") == "error 999", "nobody else has access")
            check(told.say("peer") == "ok" and told.say("reached 0") == "ok", "device 1 has")
            check(told.say("zero 4") == "ok" and told.say("reached 1") == "ok", "to what comes later too")
            round_trip(told, other, 80, 80, "with a peer")
            check(told.say("reached 0") == "ok" and told.say("reached 1") == "ok", "device 1 has access again")
            told.end()
            other.end()

    def test_second_device(self):
        """A program at rest gives way at once also on the device that it came to last, however long its turn is."""
        with Card(self.build, memory="128MiB", SIMCUDA_DEVICES="2", **Told.SMALL_CONTEXTS) as card:
            card.set("quantum", "60000")
            told, other = Told(card), Told(card, CUDA_VISIBLE_DEVICES="1")
            check(told.say("zero 4") == "ok" and told.say("device 1") == "ok" and told.say("zero 80") == "ok", "80 MiB on device 1")
            answer = other.say("zero 100", 50)  # less than a turn
            check(answer == "ok", f"100 MiB on device 1: {answer}")
            told.child.kill()
            told.child.wait()
            other.end()

    def test_short_there_only(self):
        """Room for what cannot be moved is asked for on the device that lacks it, and on no other."""
        with Card(self.build, memory="128MiB", SIMCUDA_DEVICES="2") as card:
            first, told = Told(card), Told(card)
            others = [Told(card, CUDA_VISIBLE_DEVICES="1") for _ in range(2)]
            check(first.say("zero 20") == "ok" and told.say("zero 4") == "ok", "device 0 is in use")
            check([other.say("zero 54") for other in others] == ["ok", "ok"], "device 1 is nearly full")
            for _ in range(6):  # 4 MiB each
                answer = told.say("device 1")
                check(answer == "ok", f"one more context on device 1: {answer}")
            check(wait_for(lambda: any(other.entry()["resident"] < 54 * MIB for other in others)), "room was made on device 1")
            short = {len(device["programs"]): device["short"] for device in card.status()["devices"]}
            check(short[2] == 0, f"device 0 is short of {short[2] / MIB:g} MiB")
            for program in [told, first] + others:
                program.end()

    def test_one_thread(self):
        """The library's own thread is the only one that it gets: what it would do in others it does by itself."""
        if sanitized(self.build):
            self.skipTest("a sanitizer does not let a program have its own pthread_create")
        with Card(self.build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
            told, other = Told(card, GS_THREADS="1"), Told(card, GS_THREADS="1")
            check(told.say("alloc 80") == "ok" and told.say("zero 10") == "ok", "80 MiB of random bytes, 10 MiB of zeros")
            round_trip(told, other, 80, 80, "one thread")
            check(told.say("check") == "ok", "every byte")
            told.end()
            other.end()

    def test_integrated(self):
        """A GPU that uses the host's memory: nothing would be gained, so nothing is moved, and the program is told why."""
        with Card(self.build, SIMCUDA_INTEGRATED="1") as card:
            told = Told(card)
            check(told.say("alloc 10") == "ok", "no memory")
            wait_for(lambda: card.status()["notes"])
            notes = [note["text"] for note in card.status()["notes"] if note["pid"] == told.child.pid]
            check(len(notes) == 1 and "no memory of its own" in notes[0], f"{notes}")
            check(told.say("touch") == "ok" and told.entry()["partial"] is False, f"{told.entry()}")
            told.end(silent=False)

    def test_managed_memory(self):
        managed(self.build, {"GPUSHARE_MEMORY": "managed"})

    def test_managed_memory_without_mapping(self):
        managed(self.build, {"SIMCUDA_VMM": "0"})


if __name__ == "__main__":
    main()
