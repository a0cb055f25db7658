/* SPDX-License-Identifier: Apache-2.0
 *
 * parts.h: what the files of the lock offer each other. Nobody includes it but they and
 * their tests.
 */
#ifndef GS_LOCKD_SCHED_PARTS_H
#define GS_LOCKD_SCHED_PARTS_H

#include "lockd/sched/state.h"

/* --- scheduler.c --- */
struct sched_member *sched_member_find(const struct sched_client *client, const uint8_t *uuid);

/* --- device.c --- */
/* The device, made if there is none. -ENOMEM, or -EMFILE: that user named too many already that
 * nobody knew. */
int sched_device_get(struct sched *lock, const uint8_t *uuid, uint32_t user,
                     struct sched_device **found);
/* Frees it if nobody is on it any more. */
void sched_device_free_unused(struct sched_device *device);
bool sched_party_is_steady(const struct sched_party *party); /* its bursts are about as long */
uint64_t sched_party_idle(const struct sched_party *party);  /* what it may idle */
uint64_t sched_device_quantum(const struct sched_device *device);
uint64_t sched_device_quantum_by(const struct sched_device *device,
                                 const struct sched_settings *settings);
uint64_t sched_device_idle(const struct sched_device *device);
uint64_t sched_device_reserve(const struct sched_device *device);
/* What a switch costs: measured, or guessed from what must move. */
uint64_t sched_device_switch(const struct sched_device *device);
/* The most that any one program can ever get. */
uint64_t sched_device_most(const struct sched_device *device);
/* How much more programs need than there is. */
uint64_t sched_device_shortfall(const struct sched_device *device);
/* Works out capacity and mode; notes when shares change with them. */
void sched_device_refresh(struct sched_device *device, uint64_t now);
/* A turn came to run so long after others were first stopped for it. */
void sched_device_switched(struct sched_device *device, uint64_t ns);
const struct sched_policy *sched_device_policy(const struct sched_device *device);

/* --- measure.c --- */
void sched_measure_report(struct sched_member *member, const struct gs_wire_state *state,
                          uint64_t now);
/* The driver had not so many bytes for it, when it had what it says. Who is short moves and so
 * does not measure; this is how it becomes known before the next measurement. */
void sched_measure_short(struct sched_member *member, uint64_t bytes, uint64_t now);
/* Asks who can tell, when it is time to. */
void sched_measure_ask(struct sched_device *device, uint64_t now);
/* One that said how large the device is says something else now, or has left. */
void sched_measure_recount(struct sched_device *device);
void sched_measure_forget(const struct sched_member *member, uint64_t now);
/* Bytes on the device that one who comes with memory may have had all the time. */
uint64_t sched_measure_unclaimed(const struct sched_device *device);
/* When somebody must be asked though nobody has a doubt; LOCKD_NEVER: it is not so. */
uint64_t sched_measure_deadline(const struct sched_device *device);
/* It came with memory: that may have been measured before it said so. back: from an earlier
 * daemon, so that more of them may follow. */
void sched_measure_came(const struct sched_member *member, bool back, uint64_t now);

/* --- short.c --- */
/* The driver had not so many bytes for it. */
void sched_short_report(struct sched_member *member, uint64_t bytes, uint64_t now);
/* It may have more than it had before in this turn. */
void sched_short_used(struct sched_member *member);
void sched_short_decay(struct sched_device *device, uint64_t now);

/* --- books.c --- */
bool sched_member_stuck(const struct sched_member *member, uint64_t now);
/* Nothing that it holds can be had: it does not answer, or may have less and none leaves. */
bool sched_member_clings(const struct sched_member *member, uint64_t now);
/* To be called after every change to what a member reported, was told or was given. */
void sched_books_member(struct sched_member *member, uint64_t now);
/* ... to a party; books of its members too. */
void sched_books_party(struct sched_party *party, uint64_t now);
/* Takes a member out of all sums and sets. */
void sched_books_forget(struct sched_member *member);
/* Adds up the time until now. To be called before the flags or the lease change. */
void sched_books_time(struct sched_member *member, uint64_t now);
void sched_books_ran(struct sched_party *party, uint64_t now);
void sched_books_device_ran(struct sched_device *device, uint64_t now); /* all its holders */
/* Its turn got ahead: memory came, or room for it. */
void sched_books_ahead(struct sched_member *member, uint64_t now);

/* --- plan.c --- */
/* Decides a device anew, and all that follows on others. */
void sched_plan(struct sched_device *device, uint64_t now);
void sched_plan_all(struct sched *lock, uint64_t now);
/* ... whatever is to be looked at. */
void sched_plan_pending(struct sched *lock, uint64_t now);
/* The device is to be looked at as well, before the event ends. */
void sched_plan_also(struct sched_device *device);
void sched_plan_touch(struct sched_member *member); /* its target may have to change */
void sched_plan_settle(struct sched_party *party);  /* it may have to wait or stop */

/* --- gang.c, lease.c --- */
/* The party of that client on that device; made if there is none. NULL without memory. */
struct sched_party *sched_gang_join(struct sched_client *client, struct sched_device *device);
void sched_gang_leave(struct sched_member *member, uint64_t now);
/* Frees what the client's gang was, when it was the last one. */
void sched_gang_client_gone(struct sched_client *client);
/* Whoever waits here and has given way for long enough, or to nobody, tries again. */
void sched_gang_retry(struct sched_device *device, uint64_t now);
/* All have their places: the turn begins; not again where it is under way already, and one of
 * the gang came or left. */
void sched_gang_begin(struct sched_gang *gang, uint64_t now);
/* The time of its turn counts from now on, if it does not yet and all run that want to. */
void sched_gang_look_complete(struct sched_gang *gang, uint64_t now);
/* ... however many do. */
void sched_gang_set_complete(struct sched_gang *gang, uint64_t now);
/* The party gets its place; when it was the last one of its gang, all run. */
void sched_gang_admit(struct sched_party *party, bool backfilled, uint64_t now);
/* It gives way to all others from now on, or no more. */
void sched_gang_give_way(struct sched_gang *gang, struct sched *lock, bool gives);
/* Ends the turn of all of them. */
void sched_gang_stop(struct sched_gang *gang, uint64_t now);
/* The one that is to get its place next; NULL: all have. */
struct sched_party *sched_gang_next(const struct sched_gang *gang);
/* Something about the gang changed: each of its parties may have to wait or stop. */
void sched_gang_settle(struct sched_gang *gang);
/* Has it something to run on this very device? */
bool sched_party_works(const struct sched_party *party);
/* A client's weight is another one. */
void sched_gang_reweigh(struct sched_gang *gang);
int32_t sched_gang_priority(const struct sched_gang *gang);

/* The client leaves its gang for that one (NULL: one of its own), with its members. Neither
 * gang may have a place or wait for one. Without memory nothing happens. */
void sched_gang_move(struct sched_client *client, struct sched_gang *to, uint64_t now);

/* --- group.c --- */
/* The group that the client names; made if there is none. NULL without memory. */
struct sched_group *sched_group_enter(struct sched_client *client);
void sched_group_leave(struct sched_client *client);
/* Something about its size changed. NULL: nothing happens. */
void sched_group_mark(struct sched_group *group);
/* Parts those that are too large, and brings together those that are not any more. */
void sched_group_plan(struct sched *lock, uint64_t now);

/* --- queue.c --- */
/* It waits from now on; its place may have to be another one. */
void sched_queue_enter(struct sched_party *party, uint64_t now);
void sched_queue_leave(struct sched_party *party, uint64_t now);
/* ... without a look at its books. */
void sched_queue_drop(struct sched_party *party);
/* A party of a gang that waits elsewhere: it is further away than all in the queue. */
uint64_t sched_queue_place(const struct sched_party *party);
/* What its turn takes of the device. */
uint64_t sched_queue_takes(const struct sched_party *party);
/* The one to be served next, or NULL. */
struct sched_party *sched_queue_head(const struct sched_device *device);

/* --- turns.c --- */
void sched_turns_plan(struct sched_device *device, uint64_t now);

/* --- stop.c --- */
/* Stops holders until the others fit together. */
void sched_stop_overflow(struct sched_device *device, uint64_t now);
/* ... those that idle or do not get ahead while others wait. */
void sched_stop_idle(struct sched_device *device, uint64_t now);
/* Asks the stuck ones again. */
void sched_stop_watch(struct sched_device *device, uint64_t now);

/* --- budget.c --- */
void sched_budget_plan(struct sched_device *device, uint64_t now);

/* --- send.c --- */
/* Drops the budgets that the client has left behind with what it echoed. */
void sched_send_echo(struct sched_member *member);
/* Puts out a target if it would differ from the newest in something that matters. */
void sched_send_member(struct sched_member *member, uint64_t now);
/* Touches everybody who must be told of a change to the device. */
void sched_send_broadcast(struct sched_device *device, uint64_t now);

/* --- host.c --- */
void sched_host_report(struct sched_member *member, const struct gs_wire_state *state,
                       uint64_t now);
void sched_host_forget(struct sched_client *client);
void sched_host_plan(struct sched *lock, uint64_t now);

/* --- settings.c --- */
/* Its priority may be another one: so may its places be. */
void sched_gang_requeue(struct sched_gang *gang, uint64_t now);
/* Is all its memory out, as somebody wished? */
void sched_evict_check(struct sched_member *member, uint64_t now);
/* ... of those whose time has come. */
void sched_evict_watch(struct sched_device *device, uint64_t now);

/* --- check.c: for tests --- */
/* Adds up everything from scratch. NULL: all sums and sets are right; else what is wrong. */
const char *sched_check(const struct sched *lock);

#endif
