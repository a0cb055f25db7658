/* SPDX-License-Identifier: Apache-2.0
 *
 * cards.c: reads the specification. A GPU stands there under its index and under its UUID, with
 * the same edits; that makes one card. "all" is none.
 */
#include "cluster/cards.h"
#include "lockd/protocol/wire_check.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool parse_uuid(const char *name, uint8_t uuid[16])
{
    return strncmp(name, "GPU-", 4) == 0 && lockd_uuid_read(name, uuid);
}

static int add_card(struct cards *cards, const json_t *device, struct gs_err *err)
{
    const char *name = json_string_value(json_object_get(device, "name"));
    json_t *edits = json_object_get(device, "containerEdits");
    struct card *card = NULL; /* with the same edits */

    if (name == NULL || !json_is_object(edits) || strlen(name) >= CARD_NAME_SIZE)
        return gs_err_set(err, -EINVAL, "a device has no name, a long one, or no edits");
    if (strcmp(name, "all") == 0)
        return 0;
    for (unsigned i = 0; i < cards->count && card == NULL; i++)
        card = json_equal(cards->card[i].edits, edits) ? &cards->card[i] : NULL;
    if (card != NULL && card->has_uuid)
        return 0;
    if (card == NULL && cards->count == CARDS_MOST)
        return gs_err_set(err, -E2BIG, "more than %d GPUs", CARDS_MOST);
    if (card == NULL)
        card = &cards->card[cards->count++];
    else if (!parse_uuid(name, card->uuid))
        return 0; /* a second name that says no more */
    *card = (struct card){.healthy = true, .edits = edits};
    snprintf(card->name, sizeof card->name, "%s", name);
    card->has_uuid = parse_uuid(name, card->uuid);
    return 0;
}

static int take_spec(struct cards *cards, unsigned each, struct gs_err *err)
{
    const json_t *devices = json_object_get(cards->spec, "devices");
    json_t *device;
    size_t i;

    cards->each = each;
    cards->kind = json_string_value(json_object_get(cards->spec, "kind"));
    if (cards->kind == NULL || strncmp(cards->kind, "gpushare.dev/", 13) != 0)
        return gs_err_set(err, -EINVAL,
                          "no specification of kind gpushare.dev/gpu; write one with "
                          "gpusharectl cdi generate");
    json_array_foreach(devices, i, device)
    {
        const int code = add_card(cards, device, err);

        if (code != 0)
            return code;
    }
    return cards->count != 0 ? 0 : gs_err_set(err, -ENODEV, "it names no GPU");
}

int cards_read(struct cards *cards, const char *path, unsigned each, struct gs_err *err)
{
    struct gs_err why = {0};
    json_error_t wrong;
    int code;

    *cards = (struct cards){0};
    errno = 0;
    cards->spec = json_load_file(path, 0, &wrong);
    if (cards->spec == NULL && errno == ENOENT)
        return gs_err_set(err, -ENOENT,
                          "%.300s is not there; write it with gpusharectl cdi generate "
                          "--output %.100s",
                          path, path);
    if (cards->spec == NULL)
        return gs_err_set(err, -EINVAL, "%.200s, line %d: %.160s", path, wrong.line,
                          wrong.text);
    code = take_spec(cards, each, &why);
    if (code == 0)
        return 0;
    json_decref(cards->spec);
    *cards = (struct cards){0};
    return gs_err_set(err, code, "%.200s: %.200s", path, why.text);
}

void cards_id(const struct cards *cards, unsigned card, unsigned number, char *id)
{
    snprintf(id, CARD_ID_SIZE, "%s::%u", cards->card[card].name, number);
}

int cards_find(const struct cards *cards, const char *id, unsigned *card, unsigned *number)
{
    for (unsigned i = 0; i < cards->count; i++) {
        const size_t length = strlen(cards->card[i].name);
        const char *digits = id + length + 2;
        unsigned long value;

        if (strncmp(id, cards->card[i].name, length) != 0 || strncmp(id + length, "::", 2) != 0)
            continue;
        if (strspn(digits, "0123456789") != strlen(digits) || strlen(digits) > 4 ||
            digits[0] == '\0' || (digits[0] == '0' && digits[1] != '\0'))
            return -ENOENT;
        value = strtoul(digits, NULL, 10);
        if (value >= cards->each)
            return -ENOENT;
        *card = i;
        *number = (unsigned)value;
        return 0;
    }
    return -ENOENT;
}

bool cards_is_named(const struct card *card, const char *id)
{
    const size_t length = strlen(card->name);

    return card->has_uuid && strncmp(id, card->name, length) == 0 &&
           (id[length] == '\0' || strncmp(id + length, "::", 2) == 0);
}

static char *copy_text(struct pool *pool, const json_t *value)
{
    const char *text = json_string_value(value);

    return pool_text(pool, "%s", text != NULL ? text : "");
}

static int add_variable(struct pool *pool, V1beta1__AllocateAnswer *answer, const json_t *entry)
{
    const char *text = json_string_value(entry), *equals = NULL;
    V1beta1__Pair *pair = pool_take(pool, 1, sizeof *pair);

    if (text != NULL)
        equals = strchr(text, '=');
    if (equals == NULL)
        return 0;
    if (pair == NULL)
        return -ENOMEM;
    v1beta1__pair__init(pair);
    pair->key = pool_text(pool, "%.*s", (int)(equals - text), text);
    pair->value = pool_text(pool, "%s", equals + 1);
    answer->environment[answer->n_environment++] = pair;
    return pair->key != NULL && pair->value != NULL ? 0 : -ENOMEM;
}

static bool is_read_only(const json_t *mount)
{
    json_t *option;
    size_t i;

    json_array_foreach(json_object_get(mount, "options"), i, option)
    {
        const char *text = json_string_value(option);

        if (text != NULL && strcmp(text, "ro") == 0)
            return true;
    }
    return false;
}

static int add_mount(struct pool *pool, V1beta1__AllocateAnswer *answer, const json_t *entry)
{
    V1beta1__Mount *mount = pool_take(pool, 1, sizeof *mount);

    if (mount == NULL)
        return -ENOMEM;
    v1beta1__mount__init(mount);
    mount->container_path = copy_text(pool, json_object_get(entry, "containerPath"));
    mount->host_path = copy_text(pool, json_object_get(entry, "hostPath"));
    mount->read_only = is_read_only(entry);
    answer->mounts[answer->n_mounts++] = mount;
    return mount->container_path != NULL && mount->host_path != NULL ? 0 : -ENOMEM;
}

static int add_node(struct pool *pool, V1beta1__AllocateAnswer *answer, const json_t *entry)
{
    const json_t *path = json_object_get(entry, "path"),
                 *host = json_object_get(entry, "hostPath"),
                 *rights = json_object_get(entry, "permissions");
    V1beta1__Node *node = pool_take(pool, 1, sizeof *node);

    if (node == NULL)
        return -ENOMEM;
    v1beta1__node__init(node);
    node->container_path = copy_text(pool, path);
    node->host_path = copy_text(pool, host != NULL ? host : path);
    node->permissions = rights != NULL ? copy_text(pool, rights) : pool_text(pool, "rw");
    answer->nodes[answer->n_nodes++] = node;
    return node->container_path != NULL && node->host_path != NULL && node->permissions != NULL
               ? 0
               : -ENOMEM;
}

typedef int add_entry(struct pool *pool, V1beta1__AllocateAnswer *answer, const json_t *entry);

static int add_list(struct pool *pool, V1beta1__AllocateAnswer *answer, const json_t *list,
                    add_entry *add)
{
    json_t *entry;
    size_t i;
    int code = 0;

    json_array_foreach(list, i, entry)
    {
        code = add(pool, answer, entry);
        if (code != 0)
            break;
    }
    return code;
}

static int add_edits(struct pool *pool, V1beta1__AllocateAnswer *answer, const json_t *edits)
{
    int code = add_list(pool, answer, json_object_get(edits, "env"), add_variable);

    code =
        code == 0 ? add_list(pool, answer, json_object_get(edits, "mounts"), add_mount) : code;
    return code == 0 ? add_list(pool, answer, json_object_get(edits, "deviceNodes"), add_node)
                     : code;
}

static size_t count_of(const json_t *edits, const char *name)
{
    return json_array_size(json_object_get(edits, name));
}

int edits_fill(const struct cards *cards, const unsigned *chosen, size_t count,
               struct pool *pool, V1beta1__AllocateAnswer *answer)
{
    const json_t *common = json_object_get(cards->spec, "containerEdits");
    size_t variables = count_of(common, "env"), mounts = count_of(common, "mounts"),
           nodes = count_of(common, "deviceNodes");
    int code;

    for (size_t i = 0; i < count; i++) {
        const json_t *edits = cards->card[chosen[i]].edits;

        variables += count_of(edits, "env");
        mounts += count_of(edits, "mounts");
        nodes += count_of(edits, "deviceNodes");
    }
    answer->environment = pool_take(pool, variables, sizeof(void *));
    answer->mounts = pool_take(pool, mounts, sizeof(void *));
    answer->nodes = pool_take(pool, nodes, sizeof(void *));
    if (answer->environment == NULL || answer->mounts == NULL || answer->nodes == NULL)
        return -ENOMEM;
    code = add_edits(pool, answer, common);
    for (size_t i = 0; i < count && code == 0; i++)
        code = add_edits(pool, answer, cards->card[chosen[i]].edits);
    return code;
}

bool edits_have(const struct cards *cards, const char *name)
{
    return count_of(json_object_get(cards->spec, "containerEdits"), name) != 0;
}

struct pool_block {
    struct pool_block *next;
    max_align_t bytes[];
};

void *pool_take(struct pool *pool, size_t count, size_t size)
{
    struct pool_block *block;

    if (size != 0 && count > (SIZE_MAX - sizeof *block) / size)
        return NULL;
    block = calloc(1, sizeof *block + count * size);
    if (block == NULL)
        return NULL;
    block->next = pool->blocks;
    pool->blocks = block;
    return block->bytes;
}

char *pool_text(struct pool *pool, const char *format, ...)
{
    char *text;
    int length;
    va_list ap;

    va_start(ap, format);
    length = vsnprintf(NULL, 0, format, ap);
    va_end(ap);
    text = length >= 0 ? pool_take(pool, (size_t)length + 1, 1) : NULL;
    if (text == NULL)
        return NULL;
    va_start(ap, format);
    vsnprintf(text, (size_t)length + 1, format, ap);
    va_end(ap);
    return text;
}

void pool_deinit(struct pool *pool)
{
    while (pool->blocks != NULL) {
        struct pool_block *next = pool->blocks->next;

        free(pool->blocks);
        pool->blocks = next;
    }
}
