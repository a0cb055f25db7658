/* SPDX-License-Identifier: Apache-2.0
 *
 * allocate.h: the answers to kubelet's questions about devices: which devices a container is to
 * get, and how it gets them.
 */
#pragma once

#include "cluster/cards.h"
#include "common/place.h"

/* How much of each GPU the programs of this machine want, as gpushare-lockd says. */
struct load {
    unsigned tenths[CARDS_MOST]; /* of its capacity that programs want; 0: none, or not known */
};

/* Asks the daemon, for a second at most. Without one the load is 0, and err says why. */
void load_ask(struct load *load, const struct cards *cards, const struct gs_places *places,
              struct gs_err *err);

enum allocate_answer { ALLOCATE_CDI, ALLOCATE_MOUNTS };

/* How each container gets its devices. 0; -ENOENT: an unknown device; -EINVAL: two of one GPU;
 * -EIO: a GPU that is not healthy; with words for the user in err; -ENOMEM. */
int allocate_fill(const struct cards *cards, enum allocate_answer how,
                  const V1beta1__AllocateRequest *request, struct pool *pool,
                  V1beta1__AllocateResponse *response, struct gs_err *err);

/* Which of the available devices each container should get: of distinct GPUs, the least loaded
 * first. 0; -ENOENT, -EINVAL: the question is wrong; -ENOMEM. */
int allocate_prefer(const struct cards *cards, const struct load *load,
                    const V1beta1__PreferredRequest *request, struct pool *pool,
                    V1beta1__PreferredResponse *response, struct gs_err *err);

/* All virtual devices and their health. 0 or -ENOMEM. */
int allocate_list(const struct cards *cards, struct pool *pool, V1beta1__DeviceList *list);
