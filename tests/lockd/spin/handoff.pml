/* SPDX-License-Identifier: Apache-2.0
 *
 * handoff.pml: the hand-off protocol of lockd/protocol/wire.h as a model for spin; test_handoff.py runs it.
 *
 * N programs on one device of CAPACITY units; program i has DEMAND(i) of them, which together do
 * not fit. Targets (seq, run, budget) go one way, states (seq, running, want, resident) the
 * other; each keeps its order, and they cross on the way. What a program is and has, and what the
 * daemon knows of it, are apart, as they are in reality. Programs may be killed and start anew
 * KILLS times, the daemon RESTARTS times; then it waits for all that are alive to come back.
 *
 * As in lockd/lock_*.c: who may still be running (busy), budgets that were not echoed count
 * (hold), victims give exactly the shortfall, memory is passed on as it leaves. Not modelled:
 * spare bytes, growth, policies (turns go in the order of arrival), several devices.
 *
 * Safety (assertions): all that programs have never exceeds the capacity; who runs has all its
 * memory. Liveness (turn): a program that wants to run does, unless it gives up or is killed.
 *
 * To see that the model can fail, leave a rule out: -DBREAK_DRAIN (memory moves out before work has
 * finished, and the daemon asks for that), -DBREAK_ECHO (budgets count as lowered once they are sent), -DBREAK_RECONNECT (a
 * program goes on by the budget of an earlier daemon), -DBREAK_QUANTUM (turns never end).
 */
#ifndef N
#define N 2
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef RESTARTS
#define RESTARTS 1
#endif
#ifndef REGRETS
#define REGRETS 1 /* a program that waits gives up */
#endif
#ifndef CAPACITY
#define CAPACITY 3
#endif
#define DEMAND(i) ((i) == 2 -> 1 : 2)
#ifndef FLIGHT
#define FLIGHT 2 /* targets that a program has not echoed */
#endif
#define SEQS 4   /* numbers wrap around; more than are in flight */

chan target[N] = [FLIGHT] of { byte, bit, byte };
chan state[N] = [1] of { byte, bit, bit, byte };

/* --- what is so --- */
bit alive[N], wants[N], running[N], may[N], news[N];
byte resident[N], budget[N], seq[N];
byte kills = KILLS, restarts = RESTARTS, regrets = REGRETS;

/* --- what the daemon knows, has decided and has sent --- */
bit known[N], k_running[N], k_wants[N], held[N], over[N], stopping[N];
bit owes[N];  /* it has yet to come back to a new daemon */
bit first[N]; /* it came, and has no target yet */
byte k_resident[N], k_budget[N];
bit sent_run[N];
byte sent_seq[N], sent_budget[N], flight[N];
byte older[N]; /* the highest budget before the newest that may still be acted on */
byte place[N]; /* in the queue, from 1; 0: not in it */

/* --- scratch of the atomic steps --- */
hidden byte x, y, head, used, part, c_seq, c_resident;
hidden byte c_running, c_wants, waits;

#define most(a, b) ((a) > (b) -> (a) : (b))
#define least(a, b) ((a) < (b) -> (a) : (b))
#define hold(i) most(k_resident[i], most(k_budget[i], most(sent_budget[i], older[i])))
#ifdef BREAK_DRAIN
#define busy(i) held[i]
#else
#define busy(i) (held[i] || sent_run[i] || k_running[i] || stopping[i])
#endif

inline leave(i) {
    if
    :: place[i] != 0 ->
        for (y : 0 .. N - 1) {
            if
            :: place[y] > place[i] -> place[y]--
            :: else
            fi
        }
        place[i] = 0
    :: else
    fi
}

inline enter(i) {
    if
    :: place[i] == 0 ->
        part = 1;
        for (y : 0 .. N - 1) {
            if
            :: place[y] != 0 -> part++
            :: else
            fi
        }
        place[i] = part
    :: else
    fi
}

inline forget(i) {
    leave(i);
    known[i] = 0; k_running[i] = 0; k_wants[i] = 0; held[i] = 0; over[i] = 0; stopping[i] = 0;
    k_resident[i] = 0; k_budget[i] = 0;
    sent_run[i] = 0; sent_seq[i] = 0; sent_budget[i] = 0; flight[i] = 0; older[i] = 0;
    first[i] = 0
}

inline find_head() {
    head = N;
    for (x : 0 .. N - 1) {
        if
        :: place[x] == 1 -> head = x
        :: else
        fi
    }
}

/* Who waits; the head of the queue is admitted if it fits beside all that may be running, else
 * those stop whose turn is over or who have nothing to do. */
inline turns() {
    for (x : 0 .. N - 1) {
        if
        :: known[x] && k_wants[x] && !held[x] -> enter(x)
        :: else -> leave(x)
        fi
    }
    find_head();
    do
    :: head == N -> break
    :: else ->
        used = DEMAND(head);
        for (x : 0 .. N - 1) {
            if
            :: x != head && known[x] && busy(x) -> used = used + DEMAND(x)
            :: else
            fi
        }
        if
        :: used <= CAPACITY ->
            leave(head);
            held[head] = 1;
            over[head] = 0;
            find_head()
        :: else ->
            for (x : 0 .. N - 1) {
                if
                :: held[x] && (over[x] || !k_wants[x]) ->
                    held[x] = 0;
                    if
                    :: k_wants[x] -> enter(x)
                    :: else
                    fi
                :: else
                fi
            }
            head = N
        fi
    od
}

/* Those that do not run give what holders lack; what is free is handed out. */
inline budgets() {
    used = 0;
    for (x : 0 .. N - 1) {
        used = used + (known[x] && busy(x) -> DEMAND(x) : k_budget[x])
    }
    for (x : 0 .. N - 1) {
        if
        :: known[x] && !busy(x) && used > CAPACITY ->
            part = least(k_budget[x], used - CAPACITY);
            k_budget[x] = k_budget[x] - part;
            used = used - part
        :: else
        fi
    }
    for (x : 0 .. N - 1) {
        if
        :: held[x] && k_budget[x] < DEMAND(x) ->
            used = 0;
            for (y : 0 .. N - 1) {
                used = used + hold(y)
            }
            part = hold(x) + (used < CAPACITY -> CAPACITY - used : 0);
            k_budget[x] = most(k_budget[x], least(DEMAND(x), part))
        :: else
        fi
    }
}

inline tell() {
    for (x : 0 .. N - 1) {
        if
        :: known[x] && flight[x] < FLIGHT &&
           (held[x] != sent_run[x] || k_budget[x] != sent_budget[x] || first[x]) ->
            first[x] = 0;
            older[x] = most(older[x], sent_budget[x]);
#ifdef BREAK_ECHO
            older[x] = 0;
#else
            stopping[x] = stopping[x] || (sent_run[x] && !held[x]);
#endif
            sent_seq[x] = (sent_seq[x] + 1) % SEQS;
            sent_run[x] = held[x];
            sent_budget[x] = k_budget[x];
            flight[x]++;
            target[x] ! sent_seq[x], sent_run[x], sent_budget[x]
        :: else
        fi
    }
}

inline plan() {
    waits = 0;
    for (x : 0 .. N - 1) {
        waits = waits || owes[x]
    }
    if
    :: !waits -> turns(); budgets(); tell()
    :: else
    fi
}

/* A report. The first one of a connection says what an earlier daemon allowed; it is answered in
 * any case. */
inline take(i) {
    state[i] ? c_seq, c_running, c_wants, c_resident;
    if
    :: !known[i] ->
        known[i] = 1;
        owes[i] = 0;
        sent_seq[i] = c_seq;
        sent_run[i] = c_running;
        held[i] = c_running;
        over[i] = 0;
        k_budget[i] = (c_running -> DEMAND(i) : c_resident);
        sent_budget[i] = k_budget[i];
        first[i] = 1
    :: else ->
        flight[i] = (sent_seq[i] + SEQS - c_seq) % SEQS;
        if
        :: flight[i] == 0 -> older[i] = 0; stopping[i] = 0
        :: else
        fi
    fi;
    k_running[i] = c_running;
    k_wants[i] = c_wants;
    k_resident[i] = c_resident
}

#if N > 2
#define ANY(what) (what(0) || what(1) || what(2))
#define SUM (resident[0] + resident[1] + resident[2])
#else
#define ANY(what) (what(0) || what(1))
#define SUM (resident[0] + resident[1])
#endif
#define HEARD(i) nempty(state[i])
#define FIRST(i) place[i] == 1
#define MAY_END(i) (held[i] && k_running[i] && !over[i])
#define DEAD(i) !alive[i]

active proctype daemon() {
    byte i;

end:
    do
    :: d_step {
        ANY(HEARD) ->
        for (i : 0 .. N - 1) {
            if
            :: nempty(state[i]) -> take(i)
            :: empty(state[i])
            fi
        }
        plan();
        i = 0
       }
    od
}

/* A turn lasts for a quantum from when it runs; it matters only while somebody waits. */
active proctype quantum() {
    byte i;

end:
    do
    :: d_step {
#ifdef BREAK_QUANTUM
        false &&
#endif
        ANY(FIRST) && ANY(MAY_END) ->
        for (i : 0 .. N - 1) {
            over[i] = over[i] || (held[i] && k_running[i])
        }
        plan();
        i = 0
       }
    od
}

#define empties(i) (!running[i] && resident[i] > budget[i])
#define fills(i) (may[i] && wants[i] && !running[i] && resident[i] < DEMAND(i) && resident[i] < budget[i])
#define opens(i) (may[i] && wants[i] && !running[i] && resident[i] == DEMAND(i))
#define quiet(i) (alive[i] && empty(target[i]) && !news[i])

/* Steps that it owes come before changes of mind, so these cannot go on for ever instead. */
proctype program(byte i) {
end:
    do
    :: d_step { alive[i] && nempty(target[i]) -> target[i] ? seq[i], may[i], budget[i]; news[i] = 1 }
    :: d_step { alive[i] && running[i] && !may[i] -> running[i] = 0; news[i] = 1 }
#ifdef BREAK_DRAIN
    :: d_step { alive[i] && running[i] && !may[i] && resident[i] > budget[i] -> resident[i]--; assert(!running[i]); news[i] = 1 }
#endif
    :: d_step { alive[i] && empties(i) -> resident[i]--; assert(!running[i]); news[i] = 1 }
    :: d_step { alive[i] && fills(i) -> resident[i]++; assert(SUM <= CAPACITY); news[i] = 1 }
    :: d_step { alive[i] && opens(i) -> running[i] = 1; news[i] = 1 }
    :: d_step { alive[i] && news[i] && nfull(state[i]) ->
                state[i] ! seq[i], running[i], wants[i], resident[i];
                news[i] = 0 }
    :: d_step { quiet(i) && !wants[i] -> wants[i] = 1; news[i] = 1 }
    :: quiet(i) && wants[i] && running[i] && may[i] /* it works on */
    :: d_step { quiet(i) && wants[i] && running[i] && may[i] -> wants[i] = 0; news[i] = 1 }
    :: d_step { quiet(i) && wants[i] && !running[i] && regrets > 0 -> regrets--; wants[i] = 0; news[i] = 1 }
    od
}

inline clear(i) {
    do
    :: nempty(target[i]) -> target[i] ? c_seq, c_running, c_resident
    :: nempty(state[i]) -> state[i] ? c_seq, c_running, c_wants, c_resident
    :: empty(target[i]) && empty(state[i]) -> break
    od
}

/* Its memory is free at once, and the daemon sees the end of its connection. */
inline kill(i) {
    d_step {
        kills--;
        clear(i);
        alive[i] = 0; wants[i] = 0; running[i] = 0; may[i] = 0; news[i] = 0;
        resident[i] = 0; budget[i] = 0; seq[i] = 0; owes[i] = 0;
        forget(i);
        plan();
        i = 0
    }
}

active proctype fate() {
    byte i;

end:
    do
    :: kills > 0 -> i = 0; kill(i)
    :: kills > 0 -> i = 1; kill(i)
#if N > 2
    :: kills > 0 -> i = 2; kill(i)
#endif
    :: d_step { restarts > 0 ->
                restarts--;
                for (i : 0 .. N - 1) {
                    clear(i);
                    forget(i);
                    owes[i] = alive[i];
                    news[i] = alive[i];
#ifndef BREAK_RECONNECT
                    budget[i] = (alive[i] && may[i] && running[i] -> budget[i] : resident[i]);
#endif
                }
                i = 0 }
    :: d_step { ANY(DEAD) ->
                for (i : 0 .. N - 1) {
                    if
                    :: !alive[i] -> alive[i] = 1; news[i] = 1
                    :: else
                    fi
                }
                i = 0 }
    od
}

init {
    atomic {
        for (x : 0 .. N - 1) {
            alive[x] = 1;
            news[x] = 1;
            run program(x)
        }
    }
}

#define served(i) (wants[i] -> <> (running[i] || !wants[i] || !alive[i]))

ltl turn { [] served(0) && [] served(1) }
