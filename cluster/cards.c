/* SPDX-License-Identifier: Apache-2.0
 *
 * cards.c: reads the specification. A GPU stands there under its index and under its UUID, with
 * the same edits; that makes one card. "all" is none.
 */
#include "cluster/cards.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "GPU-01234567-89ab-...": 16 bytes, as the driver counts them. */
static bool parse_uuid(const char *name, uint8_t uuid[16])
{
    unsigned digits = 0;

    if (strncmp(name, "GPU-", 4) != 0)
        return false;
    for (const char *at = name + 4; *at != '\0'; at++) {
        const char *hex = "0123456789abcdef", *digit = strchr(hex, *at);

        if (*at == '-')
            continue;
        if (digit == NULL || digits == 32)
            return false;
        uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | (digit - hex));
        digits++;
    }
    return digits == 32;
}

static struct card *find_same(struct cards *cards, const json_t *edits)
{
    for (unsigned i = 0; i < cards->count; i++)
        if (json_equal(cards->card[i].edits, edits))
            return &cards->card[i];
    return NULL;
}

static int add_card(struct cards *cards, const json_t *device, struct gs_err *err)
{
    const char *name = json_string_value(json_object_get(device, "name"));
    json_t *edits = json_object_get(device, "containerEdits");
    struct card *card;

    if (name == NULL || !json_is_object(edits) || strlen(name) >= CARD_NAME_SIZE)
        return gs_err_set(err, -EINVAL, "a device has no name, a long one, or no edits");
    if (strcmp(name, "all") == 0)
        return 0;
    card = find_same(cards, edits);
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

int cards_parse(struct cards *cards, const char *text, unsigned each, struct gs_err *err)
{
    json_error_t wrong;
    int code;

    *cards = (struct cards){0};
    cards->spec = json_loads(text, 0, &wrong);
    if (cards->spec == NULL)
        return gs_err_set(err, -EINVAL, "line %d: %.160s", wrong.line, wrong.text);
    code = take_spec(cards, each, err);
    if (code != 0)
        cards_deinit(cards);
    return code;
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
    cards_deinit(cards);
    return gs_err_set(err, code, "%.200s: %.200s", path, why.text);
}

void cards_deinit(struct cards *cards)
{
    json_decref(cards->spec);
    *cards = (struct cards){0};
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
