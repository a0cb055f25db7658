/* SPDX-License-Identifier: Apache-2.0
 *
 * cards.h: the GPUs that are given out, as gpushare's specification for container runtimes
 * (CDI, `gpusharectl cdi generate`) names them, and the virtual devices that kubelet sees: so
 * many for each GPU, "NAME::0", "NAME::1", ...
 */
#pragma once

#include "common/err.h"
#include "device_plugin.pb-c.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define CARDS_MOST     64
#define CARDS_EACH     100 /* virtual devices of one GPU */
#define CARD_NAME_SIZE 64
#define CARD_ID_SIZE   (CARD_NAME_SIZE + 8)

struct card {
    char name[CARD_NAME_SIZE]; /* in the specification: the UUID, or the index */
    uint8_t uuid[16];
    bool has_uuid;
    bool healthy;
    char why[96];  /* it is not healthy */
    json_t *edits; /* of the specification, for this GPU alone */
};

struct cards {
    json_t *spec;
    const char *kind; /* "gpushare.dev/gpu" */
    unsigned count, each;
    struct card card[CARDS_MOST];
};

/* Reads the specification; all GPUs are healthy. 0 or -errno. */
int cards_read(struct cards *cards, const char *path, unsigned each, struct gs_err *err);

/* The name of a virtual device into id (CARD_ID_SIZE bytes). */
void cards_id(const struct cards *cards, unsigned card, unsigned number, char *id);
/* The GPU and the number of a virtual device. 0; -ENOENT: there is none of that name. */
int cards_find(const struct cards *cards, const char *id, unsigned *card, unsigned *number);
/* Whether another plugin's device of that name is this GPU: its UUID, perhaps with more behind
 * "::". */
bool cards_is_named(const struct card *card, const char *id);

/* Memory for one answer, freed all at once. */
struct pool { /* {0}: empty */
    struct pool_block *blocks;
};

/* `count` elements of `size` bytes, all zero; NULL: no memory. */
void *pool_take(struct pool *pool, size_t count, size_t size);
char *pool_text(struct pool *pool, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void pool_deinit(struct pool *pool);

/* What a container with these GPUs is given, as mounts, device nodes and environment: the
 * edits of the specification, for kubelets and runtimes that do not know CDI. */

/* Fills in the answer for `count` cards; its memory is the pool's. 0 or -ENOMEM. */
int edits_fill(const struct cards *cards, const unsigned *chosen, size_t count,
               struct pool *pool, V1beta1__AllocateAnswer *answer);

/* Whether the specification has edits of that name ("hooks", "additionalGids"), which mounts
 * cannot say. */
bool edits_have(const struct cards *cards, const char *name);
