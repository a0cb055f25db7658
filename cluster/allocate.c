/* SPDX-License-Identifier: Apache-2.0
 *
 * allocate.c: see allocate.h. No state: what was given out is known to kubelet alone.
 */
#include "cluster/allocate.h"
#include "lockd/ctl/ctl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static unsigned count_tenths(const struct gs_wire_device *device)
{
    const uint64_t wanted = device->demand + device->pinned;
    const uint64_t tenth = device->capacity / 10;

    if (tenth == 0)
        return wanted != 0 ? 10000 : 0;
    return wanted / tenth < 10000 ? (unsigned)(wanted / tenth) : 10000;
}

void load_ask(struct load *load, const struct cards *cards, const struct gs_places *places,
              struct gs_err *err)
{
    struct ctl ctl = {.places = *places, .patience_s = 1};
    struct ctl_answer answer;

    *load = (struct load){0};
    memcpy(ctl.path, places->path[0], sizeof ctl.path);
    if (ctl_ask_status(&ctl, &answer) != 0) {
        gs_err_set(err, ctl.err.code, "%s", ctl.err.text);
        return;
    }
    for (size_t i = 0; i < answer.device_count; i++) {
        for (unsigned card = 0; card < cards->count; card++) {
            const struct gs_wire_device *device = &answer.devices[i];

            if (cards->card[card].has_uuid &&
                memcmp(cards->card[card].uuid, device->uuid, sizeof device->uuid) == 0)
                load->tenths[card] = count_tenths(device);
        }
    }
    ctl_answer_deinit(&answer);
}

#define NAME_SHOWN      100 /* bytes of a peer's name in an error */
#define CONTAINERS_MOST 256 /* of one request; kubelet asks for one at a time */

/* Room for an answer to each container of a request. 0, -EINVAL or -ENOMEM. */
static int begin_answers(size_t count, struct pool *pool, void **answers, struct gs_err *err)
{
    if (count > CONTAINERS_MOST) {
        gs_err_set(err, -EINVAL, "a request has %zu containers; %d are the most", count,
                   CONTAINERS_MOST);
        return -EINVAL;
    }
    *answers = pool_take(pool, count, sizeof(void *));
    return *answers != NULL ? 0 : -ENOMEM;
}

static int find_id(const struct cards *cards, const char *id, unsigned *card, unsigned *number,
                   struct gs_err *err)
{
    if (cards_find(cards, id, card, number) == 0)
        return 0;
    return gs_err_set(err, -ENOENT, "there is no device %.*s", NAME_SHOWN, id);
}

/* --- Allocate --- */

static int choose_cards(const struct cards *cards, const V1beta1__AllocateContainer *container,
                        unsigned *chosen, struct gs_err *err)
{
    bool used[CARDS_MOST] = {false};

    if (container->n_ids > cards->count)
        return gs_err_set(err, -EINVAL,
                          "a container asks for %zu GPUs and there are %u: several devices of "
                          "one GPU give no more than one does",
                          container->n_ids, cards->count);
    for (size_t i = 0; i < container->n_ids; i++) {
        unsigned card, number;
        const int code = find_id(cards, container->ids[i], &card, &number, err);

        if (code != 0)
            return code;
        if (!cards->card[card].healthy)
            return gs_err_set(err, -EIO, "GPU %s is not healthy: %s", cards->card[card].name,
                              cards->card[card].why);
        if (used[card])
            return gs_err_set(err, -EINVAL,
                              "a container asks for %zu GPUs and got GPU %s twice: too few "
                              "other GPUs of this machine have a free device",
                              container->n_ids, cards->card[card].name);
        used[card] = true;
        chosen[i] = card;
    }
    return 0;
}

static int name_devices(const struct cards *cards, const unsigned *chosen, size_t count,
                        struct pool *pool, V1beta1__AllocateAnswer *answer)
{
    answer->cdi_devices = pool_take(pool, count, sizeof(void *));
    for (size_t i = 0; i < count && answer->cdi_devices != NULL; i++) {
        V1beta1__CdiDevice *device = pool_take(pool, 1, sizeof *device);

        if (device == NULL)
            return -ENOMEM;
        v1beta1__cdi_device__init(device);
        device->name = pool_text(pool, "%s=%s", cards->kind, cards->card[chosen[i]].name);
        if (device->name == NULL)
            return -ENOMEM;
        answer->cdi_devices[answer->n_cdi_devices++] = device;
    }
    return answer->cdi_devices != NULL ? 0 : -ENOMEM;
}

int allocate_fill(const struct cards *cards, enum allocate_answer how,
                  const V1beta1__AllocateRequest *request, struct pool *pool,
                  V1beta1__AllocateResponse *response, struct gs_err *err)
{
    void *answers = NULL;
    int code = begin_answers(request->n_containers, pool, &answers, err);

    if (code != 0)
        return code;
    response->containers = answers;
    for (size_t i = 0; i < request->n_containers && code == 0; i++) {
        const V1beta1__AllocateContainer *container = request->containers[i];
        V1beta1__AllocateAnswer *answer = pool_take(pool, 1, sizeof *answer);
        unsigned chosen[CARDS_MOST] = {0};

        if (answer == NULL)
            return -ENOMEM;
        v1beta1__allocate_answer__init(answer);
        response->containers[response->n_containers++] = answer;
        code = choose_cards(cards, container, chosen, err);
        if (code == 0 && container->n_ids != 0)
            code = how == ALLOCATE_CDI
                       ? name_devices(cards, chosen, container->n_ids, pool, answer)
                       : edits_fill(cards, chosen, container->n_ids, pool, answer);
    }
    return code;
}

/* --- GetPreferredAllocation --- */

enum { NOT_OFFERED, OFFERED, CHOSEN };

struct choice {
    const struct cards *cards;
    const struct load *load;
    uint8_t state[CARDS_MOST][CARDS_EACH];
    unsigned free[CARDS_MOST]; /* offered and not chosen */
    unsigned used[CARDS_MOST]; /* chosen */
    char **ids;                /* of the pool: the answer */
    size_t count;
};

static int take_names(struct choice *choice, char *const *ids, size_t count, uint8_t state,
                      struct pool *pool, struct gs_err *err)
{
    for (size_t i = 0; i < count; i++) {
        unsigned card, number;
        const int code = find_id(choice->cards, ids[i], &card, &number, err);

        if (code != 0)
            return code;
        if (choice->state[card][number] >= state)
            continue; /* named twice */
        if (state == CHOSEN) {
            choice->ids[choice->count] = pool_text(pool, "%s", ids[i]);
            if (choice->ids[choice->count++] == NULL)
                return -ENOMEM;
            choice->used[card]++;
            choice->free[card] -= choice->state[card][number] == OFFERED;
        } else {
            choice->free[card]++;
        }
        choice->state[card][number] = state;
    }
    return 0;
}

/* Whether a is better than b: not used by this container yet, then less demand for its memory,
 * then fewer devices given out. */
static bool is_better(const struct choice *choice, unsigned a, unsigned b)
{
    if (choice->used[a] != choice->used[b])
        return choice->used[a] < choice->used[b];
    if (choice->load->tenths[a] != choice->load->tenths[b])
        return choice->load->tenths[a] < choice->load->tenths[b];
    return choice->free[a] > choice->free[b];
}

/* The next device, or -EINVAL: none is offered any more. */
static int choose_next(struct choice *choice, struct pool *pool)
{
    unsigned best = CARDS_MOST, number = 0;
    char id[CARD_ID_SIZE];

    for (unsigned card = 0; card < choice->cards->count; card++)
        if (choice->free[card] != 0 && (best == CARDS_MOST || is_better(choice, card, best)))
            best = card;
    if (best == CARDS_MOST)
        return -EINVAL;
    while (choice->state[best][number] != OFFERED)
        number++;
    choice->state[best][number] = CHOSEN;
    choice->free[best]--;
    choice->used[best]++;
    cards_id(choice->cards, best, number, id);
    choice->ids[choice->count] = pool_text(pool, "%s", id);
    return choice->ids[choice->count++] != NULL ? 0 : -ENOMEM;
}

static int prefer_one(struct choice *choice, const V1beta1__PreferredContainer *wanted,
                      struct pool *pool, struct gs_err *err)
{
    const size_t most = (size_t)choice->cards->count * choice->cards->each;
    int code;

    if (wanted->size < 0 || (size_t)wanted->size > most)
        return gs_err_set(err, -EINVAL, "%d of %zu devices are wanted", wanted->size, most);
    if (wanted->n_must_include > (size_t)wanted->size)
        return gs_err_set(err, -EINVAL, "%zu devices must be among the %d that are wanted",
                          wanted->n_must_include, wanted->size);
    choice->ids = pool_take(pool, (size_t)wanted->size, sizeof(char *));
    if (choice->ids == NULL)
        return -ENOMEM;
    code = take_names(choice, wanted->available, wanted->n_available, OFFERED, pool, err);
    code = code
               ?: take_names(choice, wanted->must_include, wanted->n_must_include, CHOSEN, pool,
                             err);
    while (code == 0 && choice->count < (size_t)wanted->size) {
        code = choose_next(choice, pool);
        if (code == -EINVAL)
            gs_err_set(err, code, "%d devices are wanted and %zu are available", wanted->size,
                       choice->count);
    }
    return code;
}

int allocate_prefer(const struct cards *cards, const struct load *load,
                    const V1beta1__PreferredRequest *request, struct pool *pool,
                    V1beta1__PreferredResponse *response, struct gs_err *err)
{
    void *answers = NULL;
    int code = begin_answers(request->n_containers, pool, &answers, err);

    if (code != 0)
        return code;
    response->containers = answers;
    for (size_t i = 0; i < request->n_containers && code == 0; i++) {
        V1beta1__PreferredAnswer *answer = pool_take(pool, 1, sizeof *answer);
        struct choice choice = {.cards = cards, .load = load};

        if (answer == NULL)
            return -ENOMEM;
        v1beta1__preferred_answer__init(answer);
        response->containers[response->n_containers++] = answer;
        code = prefer_one(&choice, request->containers[i], pool, err);
        answer->ids = choice.ids;
        answer->n_ids = choice.count;
    }
    return code;
}

/* --- ListAndWatch --- */

int allocate_list(const struct cards *cards, struct pool *pool, V1beta1__DeviceList *list)
{
    static char healthy[] = "Healthy", unhealthy[] = "Unhealthy";

    list->devices = pool_take(pool, (size_t)cards->count * cards->each, sizeof(void *));
    if (list->devices == NULL)
        return -ENOMEM;
    for (unsigned card = 0; card < cards->count; card++) {
        for (unsigned number = 0; number < cards->each; number++) {
            V1beta1__Device *device = pool_take(pool, 1, sizeof *device);
            char id[CARD_ID_SIZE];

            if (device == NULL)
                return -ENOMEM;
            v1beta1__device__init(device);
            cards_id(cards, card, number, id);
            device->id = pool_text(pool, "%s", id);
            device->health = cards->card[card].healthy ? healthy : unhealthy;
            if (device->id == NULL)
                return -ENOMEM;
            list->devices[list->n_devices++] = device;
        }
    }
    return 0;
}
