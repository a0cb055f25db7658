/* SPDX-License-Identifier: Apache-2.0
 *
 * share.c: processor sharing by one position that moves at the speed of every job: a job ends
 * when the position reaches its key, so coming and going costs O(log n) and nothing is touched
 * in between.
 */
#include "bench/sim/share.h"

#include <math.h>

#define CLOSE 1e-3 /* ns or bytes: what rounding leaves */

static void advance_jobs(struct sim_share *share)
{
    share->position += share->speed * (double)(share->clock->now_ns - share->at);
    share->at = share->clock->now_ns;
}

static void schedule_end(struct sim_share *share)
{
    const struct sim_node *first = sim_heap_first(&share->jobs);
    double left;

    if (first == NULL) {
        share->speed = 0;
        share->load = 0;
        sim_clock_cancel(share->clock, &share->timer);
        return;
    }
    share->speed = share->speed_of(share);
    left = first->key > share->position ? first->key - share->position : 0;
    sim_clock_set(share->clock, &share->timer,
                  share->clock->now_ns + (uint64_t)ceil(left / share->speed));
}

static void take_job(struct sim_share *share, struct sim_job *job)
{
    sim_heap_remove(&share->jobs, &job->node);
    share->load -= job->load;
    if (share->jobs.count == 0 && share->changed != NULL)
        share->changed(share);
}

static void end_jobs(void *owner)
{
    struct sim_share *share = owner;
    struct sim_node *first;

    advance_jobs(share);
    while ((first = sim_heap_first(&share->jobs)) != NULL &&
           first->key <= share->position + CLOSE) {
        struct sim_job *job = (struct sim_job *)first;

        take_job(share, job);
        job->done(job->owner);
    }
    schedule_end(share);
}

void sim_share_init(struct sim_share *share, struct sim_clock *clock,
                    double (*speed_of)(const struct sim_share *share), void *owner)
{
    *share = (struct sim_share){.clock = clock, .speed_of = speed_of, .owner = owner};
    sim_timer_init(&share->timer, end_jobs, share);
}

void sim_share_deinit(struct sim_share *share)
{
    sim_heap_deinit(&share->jobs);
}

void sim_share_add(struct sim_share *share, struct sim_job *job, double work)
{
    advance_jobs(share);
    if (share->jobs.count == 0)
        share->position = 0; /* so that it never grows beyond what a double tells apart */
    sim_heap_put(&share->jobs, &job->node, share->position + work);
    share->load += job->load;
    if (share->jobs.count == 1 && share->changed != NULL)
        share->changed(share);
    schedule_end(share);
}

double sim_share_left(struct sim_share *share, const struct sim_job *job)
{
    if (job->node.place == 0)
        return 0;
    advance_jobs(share);
    return job->node.key > share->position ? job->node.key - share->position : 0;
}

double sim_share_remove(struct sim_share *share, struct sim_job *job)
{
    const double left = sim_share_left(share, job);

    if (job->node.place == 0)
        return 0;
    take_job(share, job);
    schedule_end(share);
    return left;
}

void sim_share_update(struct sim_share *share)
{
    advance_jobs(share);
    schedule_end(share);
}
