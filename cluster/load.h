/* SPDX-License-Identifier: Apache-2.0
 *
 * load.h: how much of each GPU the programs of this machine want, as gpushare-lockd says.
 */
#ifndef GS_CLUSTER_LOAD_H
#define GS_CLUSTER_LOAD_H

#include "cluster/cards.h"
#include "common/paths.h"

struct load {
    unsigned tenths[CARDS_MOST]; /* of its capacity that programs want; 0: none, or not known */
};

/* Asks the daemon, for a second at most. Without one the load is 0, and err says why. */
void load_ask(struct load *load, const struct cards *cards, const struct gs_places *places,
              struct gs_err *err);

#endif
