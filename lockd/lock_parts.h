/* SPDX-License-Identifier: Apache-2.0
 *
 * lock_parts.h: what the files of the lock offer each other. Nobody includes it but they and
 * their tests.
 */
#ifndef GS_LOCKD_LOCK_PARTS_H
#define GS_LOCKD_LOCK_PARTS_H

#include "lockd/lock_state.h"

/* --- lock.c --- */
struct lockd_member *lockd_member_find(const struct lockd_client *client, const uint8_t *uuid);

/* --- lock_device.c --- */
/* The device, made if there is none. -ENOMEM, or -EMFILE: that user named too many already that
 * nobody knew. */
int lockd_device_get(struct lockd_lock *lock, const uint8_t *uuid, uint32_t user,
                     struct lockd_device **found);
/* Frees it if nobody is on it any more. */
void lockd_device_free_unused(struct lockd_device *device);
bool lockd_party_is_steady(const struct lockd_party *party); /* its bursts are about as long */
uint64_t lockd_party_idle(const struct lockd_party *party);  /* what it may idle */
uint64_t lockd_device_quantum(const struct lockd_device *device);
uint64_t lockd_device_quantum_by(const struct lockd_device *device,
                                 const struct lockd_settings *settings);
uint64_t lockd_device_idle(const struct lockd_device *device);
uint64_t lockd_device_reserve(const struct lockd_device *device);
/* What a switch costs: measured, or guessed from what must move. */
uint64_t lockd_device_switch(const struct lockd_device *device);
/* The most that any one program can ever get. */
uint64_t lockd_device_most(const struct lockd_device *device);
/* How much more programs need than there is. */
uint64_t lockd_device_shortfall(const struct lockd_device *device);
/* Works out capacity and mode; notes when shares change with them. */
void lockd_device_refresh(struct lockd_device *device, uint64_t now);
/* A turn came to run so long after others were first stopped for it. */
void lockd_device_switched(struct lockd_device *device, uint64_t ns);
const struct lockd_policy *lockd_device_policy(const struct lockd_device *device);

/* --- lock_measure.c --- */
void lockd_measure_report(struct lockd_member *member, const struct gs_wire_state *state,
                          uint64_t now);
/* The driver had not so many bytes for it, when it had what it says. Who is short moves and so
 * does not measure; this is how it becomes known before the next measurement. */
void lockd_measure_short(struct lockd_member *member, uint64_t bytes, uint64_t now);
/* Asks who can tell, when it is time to. */
void lockd_measure_ask(struct lockd_device *device, uint64_t now);
/* One that said how large the device is says something else now, or has left. */
void lockd_measure_recount(struct lockd_device *device);
void lockd_measure_forget(const struct lockd_member *member);
/* It came with memory: that may have been measured before it said so. back: from an earlier
 * daemon, so that more of them may follow. */
void lockd_measure_came(const struct lockd_member *member, bool back, uint64_t now);

/* --- lock_short.c --- */
/* The driver had not so many bytes for it. */
void lockd_short_report(struct lockd_member *member, uint64_t bytes, uint64_t now);
/* It may have more than it had before in this turn. */
void lockd_short_used(struct lockd_member *member);
void lockd_short_decay(struct lockd_device *device, uint64_t now);

/* --- lock_books.c --- */
bool lockd_member_stuck(const struct lockd_member *member, uint64_t now);
/* Nothing that it holds can be had: it does not answer, or may have less and none leaves. */
bool lockd_member_clings(const struct lockd_member *member, uint64_t now);
/* To be called after every change to what a member reported, was told or was given. */
void lockd_books_member(struct lockd_member *member, uint64_t now);
/* ... to a party; books of its members too. */
void lockd_books_party(struct lockd_party *party, uint64_t now);
/* Takes a member out of all sums and sets. */
void lockd_books_forget(struct lockd_member *member);
/* Adds up the time until now. To be called before the flags or the lease change. */
void lockd_books_time(struct lockd_member *member, uint64_t now);
void lockd_books_ran(struct lockd_party *party, uint64_t now);
void lockd_books_device_ran(struct lockd_device *device, uint64_t now); /* all its holders */
/* Its turn got ahead: memory came, or room for it. */
void lockd_books_ahead(struct lockd_member *member, uint64_t now);

/* --- lock_plan.c --- */
/* Decides a device anew, and all that follows on others. */
void lockd_plan(struct lockd_device *device, uint64_t now);
void lockd_plan_all(struct lockd_lock *lock, uint64_t now);
/* ... whatever is to be looked at. */
void lockd_plan_pending(struct lockd_lock *lock, uint64_t now);
/* The device is to be looked at as well, before the event ends. */
void lockd_plan_also(struct lockd_device *device);
void lockd_plan_touch(struct lockd_member *member); /* its target may have to change */
void lockd_plan_settle(struct lockd_party *party);  /* it may have to wait or stop */

/* --- lock_gang.c, lock_lease.c --- */
/* The party of that client on that device; made if there is none. NULL without memory. */
struct lockd_party *lockd_gang_join(struct lockd_client *client, struct lockd_device *device);
void lockd_gang_leave(struct lockd_member *member, uint64_t now);
/* Frees what the client's gang was, when it was the last one. */
void lockd_gang_client_gone(struct lockd_client *client);
/* Whoever waits here and has given way for long enough, or to nobody, tries again. */
void lockd_gang_retry(struct lockd_device *device, uint64_t now);
/* All have their places: the turn begins; not again where it is under way already, and one of
 * the gang came or left. */
void lockd_gang_begin(struct lockd_gang *gang, uint64_t now);
/* The time of its turn counts from now on, if it does not yet and all run that want to. */
void lockd_gang_look_complete(struct lockd_gang *gang, uint64_t now);
/* ... however many do. */
void lockd_gang_set_complete(struct lockd_gang *gang, uint64_t now);
/* The party gets its place; when it was the last one of its gang, all run. */
void lockd_gang_admit(struct lockd_party *party, bool backfilled, uint64_t now);
/* It gives way to all others from now on, or no more. */
void lockd_gang_give_way(struct lockd_gang *gang, struct lockd_lock *lock, bool gives);
/* Ends the turn of all of them. */
void lockd_gang_stop(struct lockd_gang *gang, uint64_t now);
/* The one that is to get its place next; NULL: all have. */
struct lockd_party *lockd_gang_next(const struct lockd_gang *gang);
/* Something about the gang changed: each of its parties may have to wait or stop. */
void lockd_gang_settle(struct lockd_gang *gang);
/* Has it something to run on this very device? */
bool lockd_party_works(const struct lockd_party *party);
/* A client's weight is another one. */
void lockd_gang_reweigh(struct lockd_gang *gang);
int32_t lockd_gang_priority(const struct lockd_gang *gang);

/* The client leaves its gang for that one (NULL: one of its own), with its members. Neither
 * gang may have a place or wait for one. Without memory nothing happens. */
void lockd_gang_move(struct lockd_client *client, struct lockd_gang *to, uint64_t now);

/* --- lock_group.c --- */
/* The group that the client names; made if there is none. NULL without memory. */
struct lockd_group *lockd_group_enter(struct lockd_client *client);
void lockd_group_leave(struct lockd_client *client);
/* Something about its size changed. NULL: nothing happens. */
void lockd_group_mark(struct lockd_group *group);
/* Parts those that are too large, and brings together those that are not any more. */
void lockd_group_plan(struct lockd_lock *lock, uint64_t now);

/* --- lock_queue.c --- */
/* It waits from now on; its place may have to be another one. */
void lockd_queue_enter(struct lockd_party *party, uint64_t now);
void lockd_queue_leave(struct lockd_party *party, uint64_t now);
/* ... without a look at its books. */
void lockd_queue_drop(struct lockd_party *party);
/* A party of a gang that waits elsewhere: it is further away than all in the queue. */
uint64_t lockd_queue_place(const struct lockd_party *party);
/* What its turn takes of the device. */
uint64_t lockd_queue_takes(const struct lockd_party *party);
/* The one to be served next, or NULL. */
struct lockd_party *lockd_queue_head(const struct lockd_device *device);

/* --- lock_turns.c --- */
void lockd_turns_plan(struct lockd_device *device, uint64_t now);

/* --- lock_stop.c --- */
/* Stops holders until the others fit together. */
void lockd_stop_overflow(struct lockd_device *device, uint64_t now);
/* ... those that idle or do not get ahead while others wait. */
void lockd_stop_idle(struct lockd_device *device, uint64_t now);
/* Asks the stuck ones again. */
void lockd_stop_watch(struct lockd_device *device, uint64_t now);

/* --- lock_budget.c --- */
void lockd_budget_plan(struct lockd_device *device, uint64_t now);

/* --- lock_send.c --- */
/* Drops the budgets that the client has left behind with what it echoed. */
void lockd_send_echo(struct lockd_member *member);
/* Puts out a target if it would differ from the newest in something that matters. */
void lockd_send_member(struct lockd_member *member, uint64_t now);
/* Touches everybody who must be told of a change to the device. */
void lockd_send_broadcast(struct lockd_device *device, uint64_t now);

/* --- lock_host.c --- */
void lockd_host_report(struct lockd_member *member, const struct gs_wire_state *state,
                       uint64_t now);
void lockd_host_forget(struct lockd_client *client);
void lockd_host_plan(struct lockd_lock *lock, uint64_t now);

/* --- lock_settings.c --- */
/* Its priority may be another one: so may its places be. */
void lockd_gang_requeue(struct lockd_gang *gang, uint64_t now);
/* Is all its memory out, as somebody wished? */
void lockd_evict_check(struct lockd_member *member, uint64_t now);
/* ... of those whose time has come. */
void lockd_evict_watch(struct lockd_device *device, uint64_t now);

/* --- lock_check.c: for tests --- */
/* Adds up everything from scratch. NULL: all sums and sets are right; else what is wrong. */
const char *lockd_lock_check(const struct lockd_lock *lock);

#endif
