/* SPDX-License-Identifier: Apache-2.0
 *
 * cards.h: the GPUs that are given out, as gpushare's specification for container runtimes
 * (CDI, `gpusharectl cdi generate`) names them, and the virtual devices that kubelet sees: so
 * many for each GPU, "NAME::0", "NAME::1", ...
 */
#ifndef GS_CLUSTER_CARDS_H
#define GS_CLUSTER_CARDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"

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
/* The same from its text. */
int cards_parse(struct cards *cards, const char *text, unsigned each, struct gs_err *err);
void cards_deinit(struct cards *cards);

/* The name of a virtual device into id (CARD_ID_SIZE bytes). */
void cards_id(const struct cards *cards, unsigned card, unsigned number, char *id);
/* The GPU and the number of a virtual device. 0; -ENOENT: there is none of that name. */
int cards_find(const struct cards *cards, const char *id, unsigned *card, unsigned *number);
/* Whether another plugin's device of that name is this GPU: its UUID, perhaps with more behind
 * "::". */
bool cards_is_named(const struct card *card, const char *id);

#endif
