/* SPDX-License-Identifier: Apache-2.0
 *
 * visible.c: which cards a process sees, and in which order: CUDA_VISIBLE_DEVICES, as the CUDA
 * C++ Programming Guide describes it ("CUDA Environment Variables"): numbers or beginnings of
 * UUIDs; what stands behind the first invalid one is not looked at. No state.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/sim.h"

static void uuid_text(unsigned index, const char *prefix, char text[48])
{
    uint8_t uuid[16];
    size_t at = (size_t)snprintf(text, 48, "%s", prefix);

    sim_card_uuid(index, uuid);
    for (size_t i = 0; i < sizeof uuid; i++)
        at += (size_t)snprintf(text + at, 48 - at, "%s%02x",
                               i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

/* The card that a word of that length means; cards if it means none, or more than one. */
static unsigned card_of(const char *word, size_t length, unsigned cards)
{
    const char *prefix = sim_has_mig() ? "MIG-" : "GPU-";
    unsigned found = cards;
    char text[48], *end;

    if (strspn(word, "0123456789") == length && length > 0 && length < 5) {
        const unsigned long number = strtoul(word, &end, 10);
        return number < cards ? (unsigned)number : cards;
    }
    if (length <= strlen(prefix) || strncmp(word, prefix, strlen(prefix)) != 0)
        return cards;
    for (unsigned i = 0; i < cards; i++) {
        uuid_text(i, prefix, text);
        if (strncasecmp(text, word, length) != 0)
            continue;
        if (found != cards)
            return cards;
        found = i;
    }
    return found;
}

unsigned sim_visible(unsigned cards, unsigned order[SIM_CARDS_MAX])
{
    const char *word = getenv("CUDA_VISIBLE_DEVICES");
    unsigned count = 0;

    for (; !word && count < cards; count++)
        order[count] = count;
    while (word) {
        const size_t length = strcspn(word, ",");
        const unsigned card = card_of(word, length, cards);

        for (unsigned i = 0; i < count; i++) {
            if (order[i] == card)
                return 0; /* twice: none, as CUDA has it */
        }
        if (card == cards)
            break;
        order[count++] = card;
        word = word[length] == ',' ? word + length + 1 : NULL;
    }
    return sim_has_mig() && count > 1 ? 1 : count; /* a process sees one instance */
}
