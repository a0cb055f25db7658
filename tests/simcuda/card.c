/* SPDX-License-Identifier: Apache-2.0
 *
 * card.c: simcuda-card, which shows the simulated cards as nvidia-smi shows real ones, or
 * removes them. Invariants: showing changes nothing, but for entries of dead processes. Threads:
 * one.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "common/fd.h"
#include "common/size.h"
#include "tests/simcuda/ledger.h"

static void show_card(const struct sim_card *card)
{
    const struct sim_properties *properties = &card->properties;
    char total[32], text[32];
    unsigned pieces = 0;
    const uint64_t shared = sim_shared_used(card, &pieces);
    uint64_t used = shared;

    for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++)
        used += card->client[i].used;
    printf("card %u: %s used of %s, PCIe ", card->index,
           gs_size_format(used, text, sizeof text),
           gs_size_format(properties->memory, total, sizeof total));
    if (properties->pcie_rate)
        printf("%.1f GB/s", (double)properties->pcie_rate / 1e9);
    else
        printf("unthrottled");
    printf(", kernels of at least %llu ns%s, driver %u\n",
           (unsigned long long)properties->kernel_ns,
           properties->timeslice ? ", one at a time" : "", properties->driver_version);
    for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++)
        if (card->client[i].pid)
            printf("  pid %-8d %-24s %12s  (peak %s)\n", card->client[i].pid,
                   card->client[i].name,
                   gs_size_format(card->client[i].used, text, sizeof text),
                   gs_size_format(card->client[i].peak, total, sizeof total));
    if (pieces)
        printf("  memory that can be shared, %4u piece%-9s %12s\n", pieces,
               pieces > 1 ? "s" : "", gs_size_format(shared, text, sizeof text));
}

static int show_all(void)
{
    struct gs_err err = {0};
    unsigned cards = 1;
    GS_CLOSE_FD int held = sim_card_hold(&err);

    for (unsigned i = 0; i < cards; i++) {
        struct sim_card *card = NULL;
        const int rc = held >= 0 ? sim_card_look(i, &card, &err) : held;
        if (rc == -ENOENT && i == 0) {
            printf(
                "no simulated card is there yet: the first program that uses one makes it\n");
            return 0;
        }
        if (rc == -ENOENT) /* nobody has used it so far */
            break;
        if (rc) {
            fprintf(stderr, "simcuda-card: %s\n", err.text);
            return 1;
        }
        sim_card_free(card); /* drops the entries of dead processes */
        cards = i == 0 ? card->properties.cards : cards;
        show_card(card);
        sim_card_unmap(card);
    }
    return 0;
}

static int reset_card(void)
{
    char folder[400], path[512];
    int rc = sim_card_folder(folder, sizeof folder);

    rc = rc ? rc : sim_shared_open(folder);
    if (rc == -ENOENT)
        return 0;
    if (rc)
        fprintf(stderr, "simcuda-card: opening %s: %s\n", folder, strerror(-rc));
    for (unsigned i = 0; i < SIM_CARDS_MAX && !rc; i++) {
        snprintf(path, sizeof path, "%s/card%u", folder, i);
        rc = unlink(path) && errno != ENOENT ? -errno : sim_shared_remove_all(i);
        if (rc)
            fprintf(stderr, "simcuda-card: removing %s and its memory: %s\n", path,
                    strerror(-rc));
    }
    return rc != 0;
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return show_all();
    if (argc == 2 && strcmp(argv[1], "--reset") == 0)
        return reset_card();
    fprintf(
        argc == 2 && strcmp(argv[1], "--help") == 0 ? stdout : stderr,
        "usage: simcuda-card            show the simulated cards and who uses them\n"
        "       simcuda-card --reset    remove them; the next program makes new ones from its\n"
        "                               environment (programs that run keep their old card)\n");
    return argc == 2 && strcmp(argv[1], "--help") == 0 ? 0 : 2;
}
